"""Reads the settings of a node: defaults < `config.toml` < `EXO_*` variables < flags.

Called by the commands that act on this machine. Pure but for reading the one file. Whatever cannot
be read ends in one line that names the file, variable or flag, and what to do.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from exo.ops.errors import SettingsError
from exo.ops.paths import Paths, find_paths
from exo.ops.settings import VARIABLE_PREFIX, About, Settings, describe_settings
from exo.ops.upstream import VARIABLES, translate_variables

CLIENT_VARIABLES = ("EXO_URL", "EXO_API_KEY")
"""Read by the commands that talk to a node, not by the node."""
BUILD_VARIABLES = ("EXO_DASHBOARD",)
"""Read while the package is built."""

Given = tuple[Any, str]
"""A value and where it stood."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with the directories they lead to, where each value came from, and what was odd."""

    settings: Settings
    paths: Paths
    origins: Mapping[str, str]
    """The source of each setting that is not at its default."""
    warnings: tuple[str, ...] = ()


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, read_file: bool = True
) -> Loaded:
    """Put the layers on top of each other.

    `flags` holds what was said on the command line, by name of the setting; None was not said.
    """
    environment = os.environ if environment is None else environment
    known = describe_settings()
    variables = dict(_read_variables(known, environment))
    said = {name: (value, known[name].flag) for name, value in flags.items() if value is not None}
    data_dir = {**variables, **said}.get("data_dir", (None, ""))
    paths = find_paths(_convert(known["data_dir"], data_dir), environment)
    file = _read_file(known, paths.config_file) if read_file else {}
    layers = {**file, **variables, **said}
    values = {name: _convert(known[name], given) for name, given in layers.items()}
    return Loaded(
        settings=Settings(**values),
        paths=paths,
        origins={name: source for name, (_, source) in layers.items()},
        warnings=tuple(_warn_of_unknown(known, environment)),
    )


def load_paths(data_dir: Path | None, environment: Mapping[str, str] | None = None) -> Paths:
    """Give the directories alone: `data_dir` or what the variables say. The settings' file is not read."""
    environment = os.environ if environment is None else environment
    about = describe_settings()["data_dir"]
    given = dict(_read_variables({"data_dir": about}, environment)).get("data_dir", (None, ""))
    return find_paths(data_dir or _convert(about, given), environment)


def _read_file(known: Mapping[str, About], path: Path) -> dict[str, Given]:
    try:
        content: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}", remedy="correct the file or move it away") from error
    for name in content:
        if name not in known:
            raise SettingsError(f"{path}: no setting is called `{name}`", remedy=_suggest(name, known))
        if not known[name].in_file:
            ways = " or ".join(filter(None, (known[name].flag, known[name].variable)))
            raise SettingsError(f"{path}: `{name}` cannot stand in this file", remedy=f"use {ways}")
    return {name: (value, f"{path}: {name}") for name, value in content.items()}


def _read_variables(known: Mapping[str, About], environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    found = translate_variables(environment)
    for about in known.values():
        # An empty variable is one that was not set: service managers and compose files cannot leave one out.
        if found.get(about.variable, ("", ""))[0]:
            value, name = found[about.variable]
            yield about.name, (_split(about, value), f"environment variable {name}")


def _split(about: About, text: str) -> Any:
    """Cut a list: paths at the system's path separator, words at commas and spaces; a table at commas and `=`."""
    kind = get_args(about.type)[0]
    if get_origin(kind) is dict:
        return dict(_split_pair(part) for part in text.split(",") if part.strip())
    if get_origin(kind) is not tuple:
        return text
    if get_args(kind)[0] is Path:
        return [part.strip() for part in text.split(os.pathsep) if part.strip()]
    # No item of a list of words holds either.
    return text.replace(",", " ").split()


def split_given(values: Iterable[str]) -> list[str]:
    """Cut what a flag was given at commas only, which upstream's lists have: all else is a person's one entry."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _split_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _convert(about: About, given: Given) -> Any:
    value, source = given
    if isinstance(value, str) and get_args(about.type)[0] is str:
        value = value.strip()
    try:
        return msgspec.convert(value, about.type, strict=False, dec_hook=_to_path)
    except msgspec.ValidationError as error:
        shown = "" if about.private or isinstance(value, list) else f" = {value!r}"
        raise SettingsError(
            f"{source}{shown}: {str(error)[:1].lower()}{str(error)[1:]}",
            remedy=f"{about.name} means: {about.description} (docs/settings.md)",
        ) from error


def _to_path(kind: type, value: Any) -> Path:
    if kind is Path and isinstance(value, str | Path) and str(value):
        # Made absolute once: a daemon lives in the root directory.
        return Path(os.path.abspath(Path(value).expanduser()))  # noqa: PTH100 - keeps the user's own symbolic links
    raise ValueError("Expected a path")


def _warn_of_unknown(known: Mapping[str, About], environment: Mapping[str, str]) -> Iterator[str]:
    read = {about.variable for about in known.values()} | VARIABLES.keys() | {*CLIENT_VARIABLES, *BUILD_VARIABLES}
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX) and name not in read:
            yield f"environment variable {name} is not a setting and does nothing; {_suggest(name, read)}"


def _suggest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}? docs/settings.md lists all" if close else "docs/settings.md lists all settings"
