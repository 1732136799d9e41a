"""The table of commands. Registers what the sibling modules define; does nothing itself.

Every command's help ends with an example.
"""

import typer

from exo.ops.cli import doctor, events, logs, models, nats, place, run, status, up

app = typer.Typer(
    help="Join the computers you already have into one AI cluster. `exo` alone is `exo up`.",
    epilog="Example: exo up --model starter. Exit codes: 0 done, 1 failed, 2 called wrongly, 3 no node, 130 interrupted.",
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


def _example(text: str) -> dict[str, str]:
    return {"epilog": f"Example: {text}"}


app.command("up", **_example("exo up --model starter --port 8000"))(up.up)
app.command("down", **_example("exo down"))(up.down)
app.command("place", **_example("exo place starter --wait"))(place.place)
app.command("stop", **_example("exo stop starter"))(place.stop)
app.command("ps", **_example("exo ps"))(status.ps)
app.command("status", **_example("exo status --json"))(status.status)
app.command("run", **_example('exo run starter "Why is the sky blue?" < notes.txt'))(run.run)
app.command("chat", **_example('exo chat starter --system "Answer in one sentence."'))(run.chat)
app.command("logs", **_example("exo logs -f -n 100"))(logs.logs)
app.command("events", **_example("exo events --follow"))(events.events)
app.command("doctor", **_example("exo doctor --json"))(doctor.doctor)

models_app.command("list", **_example("exo models list --downloaded"))(models.list_models)
models_app.command("add", **_example("exo models add starter"))(models.add)
models_app.command("import", **_example("exo models import ./smollm2.Q4_1.gguf --name me/smollm2"))(models.import_file)
models_app.command("remove", **_example("exo models remove me/smollm2"))(models.remove)
app.add_typer(models_app, name="models")

nats_app.command("info", **_example("exo nats info"))(nats.info)
nats_app.command("sub", **_example('exo nats sub "exo.tokens.>"'))(nats.sub)
nats_app.command("streams", **_example("exo nats streams"))(nats.streams)
nats_app.command("context", **_example("exo nats context && nats --context exo stream ls"))(nats.context)
app.add_typer(nats_app, name="nats")


@app.callback()
def _root(
    *, version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True)
) -> None:
    """Answered by `exo.ops.cli.run` before this is loaded; named here for `--help`."""
