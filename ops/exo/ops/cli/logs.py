"""`exo logs`: the log file of the node on this machine, running or not."""

from typing import Annotated

import typer

from exo.ops.cli.options import DataDir
from exo.ops.errors import CommandError
from exo.ops.layers import load_paths
from exo.ops.terminal import say


def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    data_dir: DataDir = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written.")] = False,
) -> None:
    """Print the last lines of the node's log file."""
    from exo.ops.log_tail import follow as follow_file
    from exo.ops.log_tail import read_last_lines

    file = load_paths(data_dir).log_file
    if not file.exists() and not follow:
        raise CommandError(f"{file} does not exist", remedy="a node writes it when it starts: `exo up`")
    for line in read_last_lines(file, lines):
        say(line)
    if follow:
        for line in follow_file(file):
            say(line)
