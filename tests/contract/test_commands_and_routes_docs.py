"""docs/cli.md and docs/api.md say what the commands and routes are."""

import re
from typing import Any

from typer.main import get_command

from exo.gateway.api_keys import NEEDS, SCOPES
from exo.gateway.routes.table import HANDLERS
from exo.gateway.routes.unbuilt import UNBUILT, UNBUILT_HANDLERS
from exo.ops import errors
from exo.ops.cli.app import app
from exo.ops.settings import describe_settings
from exo.ops.upstream import FLAGS, Kept, Refused, Renamed
from support.doc_tables import assert_rows, code, read_rows

COMMON = ("`--url`", "`--data-dir`", "`--json`")
_CATCH_ALL = {"get_page", "refuse_unknown", "refuse"}


def list_commands() -> dict[str, Any]:
    """Every command by the words that call it."""
    root: Any = get_command(app)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        nested = getattr(command, "commands", None)
        found |= {f"{name} {inner}": one for inner, one in nested.items()} if nested else {name: command}
    return found


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", " ".join(text.split()))[0].rstrip(".")


def test_every_command_is_documented() -> None:
    expected = [
        (code(f"exo {name}"), first_sentence(command.help), code(command.epilog.removeprefix("Example: ")))
        for name, command in list_commands().items()
    ]
    assert_rows("cli.md", "Commands", expected)


def list_options(command: Any) -> list[tuple[str, str]]:
    """(spellings, help) of every option, longest spelling first; arguments are part of the usage line."""
    options = [one for one in command.params if one.opts[0].startswith("-")]
    return [
        (", ".join(code(spelling) for spelling in sorted(one.opts, key=len, reverse=True)), one.help) for one in options
    ]


def test_every_option_is_documented() -> None:
    commands = list_commands()
    common = {spelling: text for spelling, text in list_options(commands["status"]) if spelling in COMMON}
    rows = [
        (code(f"exo {name}"), spelling, text)
        for name, command in commands.items()
        for spelling, text in list_options(command)
        if common.get(spelling) != text
    ]
    assert_rows("cli.md", "Options", rows)
    assert_rows("cli.md", "Common options", list(common.items()))


def test_upstream_flags_that_are_kept_or_translated_exist() -> None:
    known = {spelling for option in list_commands()["up"].params for spelling in option.opts}
    kept = {name for name, fate in FLAGS.items() if isinstance(fate, Kept)} - {"--version"}
    ours = {fate.ours for fate in FLAGS.values() if isinstance(fate, Renamed)}
    assert kept | ours <= known
    assert {name for name, fate in FLAGS.items() if isinstance(fate, Refused)} & known == set()


def test_settings_name_flags_that_exist() -> None:
    known = {spelling for option in list_commands()["up"].params for spelling in option.opts}
    spelt = {flag for about in describe_settings().values() for flag in about.flag.split(", ") if flag}
    assert spelt - {"-vv"} <= known


def test_every_exit_code_is_documented() -> None:
    codes = [errors.OK, errors.FAILED, errors.USAGE, errors.NO_NODE, errors.INTERRUPTED]
    assert [row[0] for row in read_rows("cli.md", "Exit codes")] == [code(str(one)) for one in codes]


def list_routes() -> list[tuple[str, str, str, str]]:
    """(methods, path, summary, scopes) of every route that is built, in the order of the table."""
    rows: list[tuple[str, str, str, str]] = []
    for handler in HANDLERS:
        if handler in UNBUILT_HANDLERS or handler.fn.__name__ in _CATCH_ALL:
            continue
        methods = " ".join(sorted(getattr(method, "value", method) for method in handler.http_methods))
        summary = handler.summary or first_sentence(handler.fn.__doc__ or "")
        scopes = " ".join(scope for scope in SCOPES if scope in handler.opt[NEEDS])
        rows += [(methods, show_path(path), summary, scopes) for path in sorted(handler.paths, key=len, reverse=True)]
    return rows


def show_path(path: str) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def test_every_route_is_documented() -> None:
    routes = list_routes()
    assert len(routes) > 25
    expected = [(code(methods), code(path), summary, code(scopes)) for methods, path, summary, scopes in routes]
    assert_rows("api.md", "Routes", expected)


def test_every_route_that_is_not_built_says_what_it_waits_for() -> None:
    expected = [(code(" ".join(methods)), code(show_path(path)), reason) for path, methods, reason in UNBUILT]
    assert_rows("api.md", "Not built yet", expected)
