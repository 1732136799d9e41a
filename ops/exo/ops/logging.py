"""Sets logging up for a process: structlog, and the standard library's loggers through the same chain.

stderr is for the person at the terminal: the time only, ISO dates with `-v`, colour on a terminal.
The file under the log directory always has dates, and DEBUG with `-v`; it rotates by size and at
each start. Called once by `exo up`; modules only ever call `structlog.get_logger(__name__)`.
"""

import logging
import logging.handlers
import sys
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor

from exo.ops.color import wants_color
from exo.ops.redaction import redact_event

FILE_BYTES = 16 * 1024 * 1024
FILES_KEPT = 5
_CHATTY = ("asyncio", "httpcore2", "httpx2", "litestar", "nats", "uvicorn", "uvicorn.access", "uvicorn.error")
"""Libraries whose DEBUG says little about exo: they speak from WARNING on, with `-vv` always."""


def set_up_logging(*, verbosity: int, log_file: Path | None, stream: TextIO | None = None) -> None:
    """Send every log line to `stream` (stderr by default) and, if there is one, to `log_file`.

    `verbosity` is -1 for warnings only, 0 normal, 1 for DEBUG, 2 for the libraries' DEBUG too.
    """
    handlers: list[logging.Handler] = [_make_stream_handler(stream or sys.stderr, verbosity)]
    if log_file is not None:
        handlers.append(_make_file_handler(log_file, verbosity))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(min(handler.level for handler in handlers))
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if verbosity >= 2 else logging.WARNING)
    _configure_structlog(root.level)


def _configure_structlog(level: int) -> None:
    structlog.configure(
        processors=[*_COMMON, ProcessorFormatter.wrap_for_formatter],
        # Filters before the event dictionary is built: a DEBUG line nobody wants costs next to nothing.
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


class _TerminalHandler(logging.StreamHandler[TextIO]):
    """Clears the progress line that may stand where the next line goes; it is drawn again when it moves."""

    def format(self, record: logging.LogRecord) -> str:
        return f"\r\x1b[K{super().format(record)}"


def _make_stream_handler(stream: TextIO, verbosity: int) -> logging.Handler:
    handler = _TerminalHandler(stream) if stream.isatty() else logging.StreamHandler(stream)
    handler.setLevel({-1: logging.WARNING, 0: logging.INFO}.get(verbosity, logging.DEBUG))
    stamp = _stamp("%Y-%m-%dT%H:%M:%S" if verbosity >= 1 else "%H:%M:%S")
    handler.setFormatter(_make_formatter(stamp, colors=wants_color(stream), source=verbosity >= 1))
    return handler


def _make_file_handler(file: Path, verbosity: int) -> logging.Handler:
    handler = logging.handlers.RotatingFileHandler(
        file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8", delay=True
    )
    if file.exists() and file.stat().st_size:
        handler.doRollover()
    handler.setLevel(logging.DEBUG if verbosity >= 1 else logging.INFO)
    handler.setFormatter(_make_formatter(_stamp("%Y-%m-%dT%H:%M:%S"), colors=False, source=True))
    return handler


def _make_formatter(stamp: Processor, *, colors: bool, source: bool) -> logging.Formatter:
    # Without locals: a traceback that shows them shows prompts.
    renderer = ConsoleRenderer(colors=colors, exception_formatter=plain_traceback, pad_event_to=36)
    drop = () if source else (_drop_logger_name,)
    return ProcessorFormatter(
        foreign_pre_chain=_COMMON,
        processors=[ProcessorFormatter.remove_processors_meta, stamp, *drop, renderer],
    )


def _stamp(form: str) -> Processor:
    return structlog.processors.TimeStamper(fmt=form, utc=False)


def _drop_logger_name(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event.pop("logger", None)
    return event


_COMMON: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    redact_event,
)
"""What happens to every line, ours and the libraries', before it is rendered for one destination."""
