# Everything real happens in ops/setup (Python, standard library only) and in the exo CLI; this file names the doors.

# macOS's own python3 may be older than the 3.11 that exo needs, with a newer one beside it under its full name.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
SETUP = $(if $(PYTHON),$(PYTHON) ops/setup,$(error exo needs Python 3.11 or newer on PATH (or say `make PYTHON=/path/to/python3`)))
BIN = .venv/bin

.DEFAULT_GOAL := help
.PHONY: help up setup test test-full format lint dashboard lock bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

up: ## Set everything up, get the starter model and serve it (more flags: ARGS="--port 8000")
	@$(SETUP) up
	@exec $(BIN)/exo up --model starter $(ARGS)

setup: ## Set up everything that development needs
	@$(SETUP) development

test: ## Set everything up and pass all checks and tests (pytest's flags: ARGS="-k relay")
	@$(SETUP) check $(ARGS)

test-full: ## The same with the tests that take minutes
	@$(SETUP) check -m "" $(ARGS)

format: setup ## Format and repair what can be repaired
	@$(BIN)/ruff check --quiet --fix-only . && $(BIN)/ruff format .

lint: setup ## Format check, lint, types and import contracts
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/basedpyright && $(BIN)/lint-imports --no-logo --no-cache

dashboard: ## Build the pages that exo serves at its root
	@$(SETUP) dashboard

lock: ## Resolve the locks under requirements/ again (newer versions: ARGS=--upgrade)
	@$(SETUP) lock $(ARGS)

bench: setup ## Measure, and print each target with PASS or MISS
	@$(BIN)/python -m bench.report $(ARGS)

clean: ## Remove all that was built or fetched into the clone
	rm -rf .venv .build dist dashboard/exo/dashboard/static dashboard/web/node_modules .pytest_cache .ruff_cache
