"""`exo uninstall`: takes exo's service, data, configuration and caches off this machine, models only when told."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exo.ops.cli.options import DataDir
from exo.ops.errors import CommandError, SettingsError, UsageError
from exo.ops.layers import Loaded, load_settings
from exo.ops.lock import is_held, read_holder
from exo.ops.terminal import say, tell

if TYPE_CHECKING:
    from exo.ops.leftovers import Leftovers
    from exo.ops.service_manager import ServiceManager

_PATIENCE = 60.0


def uninstall(
    data_dir: DataDir = None,
    *,
    delete_models: Annotated[bool, typer.Option("--delete-models", help="Delete the models too.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop a node that runs, first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the service, data and configuration of this machine; models stay unless told."""
    loaded = _load(data_dir)
    _refuse_while_running(loaded, stop=stop)
    services, leftovers = _find_services(), _find_leftovers(loaded, delete_models=delete_models)
    _show(services, leftovers)
    if not services and not leftovers.remove:
        tell("Nothing to remove.")
        return
    if not yes:
        _ask()
    _stop(loaded, services)
    # A node writes its last files when it stops.
    _remove(_find_leftovers(loaded, delete_models=delete_models))


def _load(data_dir: Path | None) -> Loaded:
    try:
        return load_settings({"data_dir": data_dir})
    except SettingsError:
        # What cannot be read must be removable.
        return load_settings({"data_dir": data_dir}, read_file=False)


def _refuse_while_running(loaded: Loaded, *, stop: bool) -> None:
    if stop or not is_held(loaded.paths.lock_file):
        return
    holder = read_holder(loaded.paths.lock_file)
    who = f"process {holder.pid}" if holder else "another process"
    raise CommandError(f"a node runs on {loaded.paths.data}: {who}", remedy="add --stop, or say `exo down` first")


def _find_services() -> "list[ServiceManager]":
    from exo.ops.service_manager import ServiceManager, find_manager

    managers = [ServiceManager(find_manager(), system=system) for system in (False, True)]
    return [manager for manager in managers if manager.file.exists()]


def _find_leftovers(loaded: Loaded, *, delete_models: bool) -> "Leftovers":
    from exo.ops.leftovers import find_leftovers
    from exo.ops.model_directories import find_model_directories
    from exo.services.downloads.inventory import scan

    directories = find_model_directories(loaded.settings, loaded.paths).writable
    folders = [held.folder for held in scan(directories).values()] if delete_models else []
    return find_leftovers(loaded.paths, models=folders, model_directories=directories, delete_models=delete_models)


def _show(services: "list[ServiceManager]", leftovers: "Leftovers") -> None:
    for path in (*[service.file for service in services], *leftovers.remove):
        say(f"remove {path}")
    for path in leftovers.keep:
        say(f"keep   {path}")


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UsageError("there is nobody to ask whether to go on", remedy="add --yes")
    if not typer.confirm("Remove these?"):
        raise CommandError("nothing was removed")


def _stop(loaded: Loaded, services: "list[ServiceManager]") -> None:
    """The service first: its manager would start the node again."""
    from exo.ops.stopping import stop_node

    for service in services:
        service.uninstall()
    if is_held(loaded.paths.lock_file):
        stop_node(loaded.paths, timeout=_PATIENCE)


def _remove(leftovers: "Leftovers") -> None:
    from exo.ops.leftovers import remove_leftovers

    left = remove_leftovers(leftovers)
    for directory in left:
        tell(f"{directory} stays: it holds what exo did not put there, or models")
    tell("The program itself stays; `pip uninstall exo`, or delete the clone.")
