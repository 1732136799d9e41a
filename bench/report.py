"""Run the scenarios and print each target with its value and PASS or MISS: `python -m bench.report [SCENARIO]...`."""

import argparse
import logging
import sys
import time
from collections.abc import Callable
from importlib import import_module

import structlog

from bench.target import Result

SCENARIOS = ("micro", "startup", "relay", "serve", "cluster", "soak")


def main() -> int:
    """Print the report; the exit code is 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="bench/report", description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="all when none is named")
    chosen: list[str] = parser.parse_args().scenario or list(SCENARIOS)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    results: list[Result] = []
    for name in chosen:
        run: Callable[[], list[Result]] = import_module(f"bench.{name}").run
        started = time.perf_counter()
        for result in run():
            print(result.line(), flush=True)
            results.append(result)
        print(f"      {name} took {time.perf_counter() - started:.0f} s", flush=True)
    missed = [result for result in results if not result.passed]
    judged = sum(result.bound is not None for result in results)
    print(f"{judged - len(missed)} of {judged} targets met")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
