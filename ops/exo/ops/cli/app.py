"""The table of commands. Registers what the sibling modules define; does nothing itself.

Every command's help ends with an example.
"""

import re
from collections.abc import Callable
from typing import Any

import typer

from exo.ops.cli import (
    cluster,
    doctor,
    drain,
    events,
    keys,
    logs,
    models,
    nats,
    place,
    service,
    status,
    talk,
    uninstall,
    up,
)

app = typer.Typer(
    help="Join the computers you already have into one AI cluster. `exo` alone is `exo up`.",
    epilog="Example: exo up --model starter. Exit codes: 0 done, 1 failed, 2 called wrongly, 3 no node, 130 stopped.",
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
models_app = typer.Typer(
    help="List, add, import and remove models.", epilog="Example: exo models add starter", no_args_is_help=True
)
nats_app = typer.Typer(
    help="Look at the message broker.", epilog='Example: exo nats sub "exo.events.>"', no_args_is_help=True
)

cluster_app = typer.Typer(
    help="See who belongs to the cluster, close it, join a closed one.",
    epilog="Example: exo cluster secret",
    no_args_is_help=True,
)
keys_app = typer.Typer(
    help="Make, list and revoke API keys.", epilog="Example: exo keys add laptop", no_args_is_help=True
)
service_app = typer.Typer(
    help="Have the system start the node and keep it running.",
    epilog="Example: exo service install",
    no_args_is_help=True,
)


def _add(name: str, function: Callable[..., Any], *, example: str, to: typer.Typer = app) -> None:
    # A description that is given is wrapped, not cut, where commands are listed.
    first = re.split(r"(?<=\.) ", " ".join((function.__doc__ or "").split()))[0]
    to.command(name, epilog=f"Example: {example}", short_help=first)(function)


def _add_group(name: str, group: typer.Typer) -> None:
    app.add_typer(group, name=name, short_help=group.info.help)


_add("up", up.up, example="exo up --model starter --port 8000")
_add("down", up.down, example="exo down")
_add("drain", drain.drain, example="exo drain studio")
_add("place", place.place, example="exo place starter --wait")
_add("stop", place.stop, example="exo stop starter")
_add("ps", status.ps, example="exo ps")
_add("status", status.status, example="exo status --json")
_add("run", talk.run, example='exo run starter "Why is the sky blue?" < notes.txt')
_add("chat", talk.chat, example='exo chat starter --system "Answer in one sentence."')
_add("logs", logs.logs, example="exo logs -f -n 100")
_add("events", events.events, example="exo events --follow")
_add("doctor", doctor.doctor, example="exo doctor --json")
_add("uninstall", uninstall.uninstall, example="exo uninstall --delete-models")

_add("list", models.list_models, example="exo models list --downloaded", to=models_app)
_add("add", models.add, example="exo models add starter", to=models_app)
_add("import", models.import_file, example="exo models import ./smollm2.Q4_1.gguf --name me/smollm2", to=models_app)
_add("remove", models.remove, example="exo models remove me/smollm2", to=models_app)
_add_group("models", models_app)

_add("info", nats.info, example="exo nats info", to=nats_app)
_add("sub", nats.sub, example='exo nats sub "exo.tokens.>"', to=nats_app)
_add("streams", nats.streams, example="exo nats streams", to=nats_app)
_add("context", nats.context, example="exo nats context && nats --context exo stream ls", to=nats_app)
_add_group("nats", nats_app)

_add("show", cluster.show, example="exo cluster show", to=cluster_app)
_add("secret", cluster.secret, example="exo cluster secret", to=cluster_app)
_add("join", cluster.join, example="exo cluster join - < secret.txt", to=cluster_app)
_add("leave", cluster.leave, example="exo cluster leave", to=cluster_app)
_add_group("cluster", cluster_app)

_add("add", keys.add, example="exo keys add laptop --scope infer --scope read", to=keys_app)
_add("list", keys.list_keys, example="exo keys list", to=keys_app)
_add("revoke", keys.revoke, example="exo keys revoke 1f0c2a9b4d7e", to=keys_app)
_add_group("keys", keys_app)

_add("install", service.install, example="exo service install --print", to=service_app)
_add("uninstall", service.uninstall, example="exo service uninstall", to=service_app)
_add("status", service.status, example="exo service status", to=service_app)
_add_group("service", service_app)


@app.callback()
def _root(
    *, version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True)
) -> None:
    """Answered by `exo.ops.cli.run` before this is loaded; named here for `--help`."""
