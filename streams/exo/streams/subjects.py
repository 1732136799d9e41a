"""The only place that spells a NATS subject.

Whole words, because people read them with `exo nats sub`. Every variable part is one token of
`[a-z0-9-]`; a part that is not raises `InvalidSubjectTokenError`.
"""

from exo.streams.ids import SUBJECT_TOKEN, NodeId, TaskId

COMMANDS = "exo.commands.>"
EVENTS = "exo.events.>"
EPOCH = "exo.events.epoch"
REQUESTS = "exo.requests.>"
TOKENS = "exo.tokens.>"
RESPONSES = "exo.responses.>"
TELEMETRY = "exo.telemetry.>"
CONTROL = "exo.control.>"
LOGS = "exo.logs.>"
POISON = "exo.poison.>"


class InvalidSubjectTokenError(ValueError):
    """Raised when a part of a subject is not one `[a-z0-9-]` token."""

    def __init__(self, token: str) -> None:
        super().__init__(f"not a subject token: {token!r}")
        self.token = token


def _token(text: str) -> str:
    if not SUBJECT_TOKEN.match(text):
        raise InvalidSubjectTokenError(text)
    return text


def command(aggregate: str, verb: str) -> str:
    """`exo.commands.<aggregate>.<verb>`, read by the master."""
    return f"exo.commands.{_token(aggregate)}.{_token(verb)}"


def master_event(aggregate: str, identifier: str, verb: str) -> str:
    """`exo.events.master.<aggregate>.<id>.<verb>`, a decision."""
    return f"exo.events.master.{_token(aggregate)}.{_token(identifier)}.{_token(verb)}"


def node_event(node: NodeId, verb: str) -> str:
    """`exo.events.node.<node>.<verb>`, a fact that a node states about itself."""
    return f"exo.events.node.{_token(node)}.{_token(verb)}"


def request(task: TaskId) -> str:
    """`exo.requests.<task>`, the stored body of one request."""
    return f"exo.requests.{_token(task)}"


def tokens(node: NodeId, task: TaskId) -> str:
    """`exo.tokens.<node>.<task>`, the chunks of one answer."""
    return f"exo.tokens.{_token(node)}.{_token(task)}"


def tokens_of_task(task: TaskId) -> str:
    """`exo.tokens.*.<task>`, the chunks of one answer whichever node writes them."""
    return f"exo.tokens.*.{_token(task)}"


def response(identifier: str) -> str:
    """`exo.responses.<response>`, a stored answer of the Responses API."""
    return f"exo.responses.{_token(identifier)}"


def telemetry(node: NodeId, gauge: str) -> str:
    """`exo.telemetry.<node>.<gauge>`, the newest sample of one gauge."""
    return f"exo.telemetry.{_token(node)}.{_token(gauge)}"


def control(node: NodeId, verb: str) -> str:
    """`exo.control.<node>.<verb>`, a request to one node with a reply."""
    return f"exo.control.{_token(node)}.{_token(verb)}"


def logs(node: NodeId, level: str) -> str:
    """`exo.logs.<node>.<level>`, log lines of a node."""
    return f"exo.logs.{_token(node)}.{_token(level)}"


def poison(stream: str) -> str:
    """`exo.poison.<stream>`, messages that nobody could read or finish; `EXO_EVENTS` becomes `exo-events`."""
    return f"exo.poison.{_token(stream.lower().replace('_', '-'))}"


def node_and_gauge(subject: str) -> tuple[NodeId, str]:
    """Split `exo.telemetry.<node>.<gauge>` again."""
    _, _, node, gauge = subject.split(".")
    return NodeId(node), gauge
