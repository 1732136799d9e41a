"""`exo service`: the node as a service of systemd or launchd, started at log-in or boot."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exo.ops.cli.options import DataDir
from exo.ops.errors import FAILED, OK, CommandError
from exo.ops.layers import Loaded, load_settings
from exo.ops.lock import is_held, read_holder
from exo.ops.terminal import say, tell

if TYPE_CHECKING:
    from exo.ops.service_files import Service
    from exo.ops.service_manager import ServiceManager

SYSTEM_ENVIRONMENT = Path("/etc/exo/service.env")
"""Apart from anybody's home directory, which the service's user may not be able to enter."""
TRAVERSABLE = 0o755

System = Annotated[bool, typer.Option("--system", help="For the whole machine, from boot on; needs root.")]


def install(
    data_dir: DataDir = None,
    *,
    system: System = False,
    print_only: Annotated[bool, typer.Option("--print", help="Show what would be written, and do nothing.")] = False,
) -> None:
    """Start the node with the machine and keep it running; the EXO_* variables of this shell become its settings."""
    from exo.ops.files import write_private
    from exo.ops.service_files import choose_variables, make_environment_file, make_unit

    loaded = load_settings({"data_dir": data_dir})
    manager, service = _make_manager(system=system), _make_service(loaded, system=system)
    extra = {"EXO_DATA_DIR": str(data_dir.absolute())} if data_dir else {}
    variables = choose_variables(os.environ, extra=extra)
    unit = make_unit(service)
    if print_only:
        say(f"# {manager.file}\n{unit}")
        # The names alone: a secret may be among the values.
        say(f"# {service.environment_file} (0600) sets: {', '.join(variables) or 'nothing'}")
        return
    manager.require()
    if is_held(loaded.paths.lock_file) and manager.look().state != "active":
        holder = read_holder(loaded.paths.lock_file)
        who = f"process {holder.pid}" if holder else "another process"
        raise CommandError(f"a node runs on {loaded.paths.data} already: {who}", remedy="stop it with `exo down`")
    write_private(service.environment_file, make_environment_file(variables).encode())
    if system:
        # launchd's sh reads it as that user.
        shutil.chown(service.environment_file, service.user)
        service.environment_file.parent.chmod(TRAVERSABLE)
    manager.install(unit)
    say(str(manager.file))
    tell("The node runs as a service now; `exo service status`, `exo logs -f`.")
    if manager.manager == "systemd" and not system:
        tell("It ends when you log out, unless `loginctl enable-linger` was said once.")


def uninstall(data_dir: DataDir = None, *, system: System = False) -> None:
    """Stop the service and remove it; data and models stay."""
    manager = _make_manager(system=system)
    if not manager.uninstall():
        raise CommandError(f"{manager.file} does not exist", remedy="nothing to remove; `exo service status`")
    _find_environment_file(load_settings({"data_dir": data_dir}), system=system).unlink(missing_ok=True)
    say(str(manager.file))


def status(*, system: System = False) -> int:
    """Show whether the service is installed and what the service manager says of it; exits with 1 unless it runs."""
    manager = _make_manager(system=system)
    found = manager.look()
    say(f"{manager.manager}: {found.state}")
    say(f"{found.file}: {'installed' if found.exists else 'not installed'}")
    return OK if found.exists and found.state in {"active", "running"} else FAILED


def _make_manager(*, system: bool) -> "ServiceManager":
    from exo.ops.service_manager import ServiceManager, find_manager

    return ServiceManager(find_manager(), system=system)


def _find_environment_file(loaded: Loaded, *, system: bool) -> Path:
    return SYSTEM_ENVIRONMENT if system else loaded.paths.service_environment


def _make_service(loaded: Loaded, *, system: bool) -> "Service":
    from exo.ops.service_files import Service, make_stop_seconds
    from exo.ops.service_manager import find_manager, find_service_user

    return Service(
        manager=find_manager(),
        command=(str(Path(sys.executable).with_name("exo")), "up"),
        environment_file=_find_environment_file(loaded, system=system),
        output=loaded.paths.logs / "service.log",
        stop_seconds=make_stop_seconds(loaded.settings.shutdown_grace),
        user=find_service_user() if system else "",
    )
