"""The table of streams and buckets: what JetStream keeps, where and for how long.

`broker/provision.py` makes the server match it; the docs list it. Sizes are bytes, ages seconds.
"""

from enum import StrEnum

import msgspec

from exo.streams import subjects

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

MAX_PAYLOAD = 8 * MIB
"""The server's `max_payload`; publishers check sizes locally first; above 8 MB the server's makers advise against."""

BLOB_THRESHOLD = 4 * MIB
"""A request body above this goes to the object store, its reference to EXO_REQUESTS."""

LARGEST_REQUEST = 60 * MIB
"""A request above this is refused: its frame to the runner would be over `pipe.MAX_FRAME`."""


class Storage(StrEnum):
    """Where a stream keeps its messages."""

    FILE = "file"
    MEMORY = "memory"


class Retention(StrEnum):
    """When a stream forgets a message."""

    LIMITS = "limits"
    WORK_QUEUE = "workqueue"


class Discard(StrEnum):
    """What a full stream does: refuse the new message or drop the oldest."""

    NEW = "new"
    OLD = "old"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One JetStream stream. Sizes in bytes, ages in seconds, 0 for no limit."""

    name: str
    subjects: tuple[str, ...]
    storage: Storage
    retention: Retention = Retention.LIMITS
    discard: Discard
    max_bytes: int
    max_age: float = 0
    max_messages_per_subject: int = 0
    duplicate_window: float = 120
    acknowledged: bool = True
    allow_direct: bool = True
    deny_delete: bool = False
    description: str


class BucketSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One key-value bucket. `marker_ttl` switches on per-key TTL (seconds)."""

    name: str
    storage: Storage
    history: int = 1
    max_bytes: int
    marker_ttl: float = 0
    description: str


class ObjectStoreSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One object store for bodies too large for a message."""

    name: str
    storage: Storage
    max_age: float
    max_bytes: int
    description: str


COMMANDS = StreamSpec(
    name="EXO_COMMANDS",
    subjects=(subjects.COMMANDS,),
    storage=Storage.FILE,
    retention=Retention.WORK_QUEUE,
    discard=Discard.NEW,
    max_bytes=64 * MIB,
    description="what clients ask for, until the master has decided",
)
EVENTS = StreamSpec(
    name="EXO_EVENTS",
    subjects=(subjects.EVENTS,),
    storage=Storage.FILE,
    discard=Discard.NEW,
    max_bytes=GIB,
    deny_delete=True,
    description="decisions of the master and facts of the nodes: the source of State",
)
REQUESTS = StreamSpec(
    name="EXO_REQUESTS",
    subjects=(subjects.REQUESTS,),
    storage=Storage.FILE,
    discard=Discard.OLD,
    max_bytes=GIB,
    max_age=3600,
    max_messages_per_subject=1,
    description="the body of each running request",
)
TOKENS = StreamSpec(
    name="EXO_TOKENS",
    subjects=(subjects.TOKENS,),
    storage=Storage.MEMORY,
    discard=Discard.OLD,
    max_bytes=64 * MIB,
    max_age=1800,
    duplicate_window=0.1,
    acknowledged=False,
    description="answers chunk by chunk, kept for resuming",
)
LOGS = StreamSpec(
    name="EXO_LOGS",
    subjects=(subjects.LOGS,),
    storage=Storage.MEMORY,
    discard=Discard.OLD,
    max_bytes=16 * MIB,
    max_age=86400,
    duplicate_window=0.1,
    acknowledged=False,
    description="log lines of every node",
)
RESPONSES = StreamSpec(
    name="EXO_RESPONSES",
    subjects=(subjects.RESPONSES,),
    storage=Storage.FILE,
    discard=Discard.OLD,
    max_bytes=512 * MIB,
    max_age=86400,
    max_messages_per_subject=1,
    description="stored answers of the Responses API",
)
POISON = StreamSpec(
    name="EXO_POISON",
    subjects=(subjects.POISON,),
    storage=Storage.FILE,
    discard=Discard.OLD,
    max_bytes=64 * MIB,
    description="messages that nobody could read or finish",
)
STREAMS: tuple[StreamSpec, ...] = (COMMANDS, EVENTS, REQUESTS, TOKENS, RESPONSES, LOGS, POISON)

LEASE = BucketSpec(
    name="exo_lease",
    storage=Storage.MEMORY,
    max_bytes=MIB,
    marker_ttl=5,
    description="who is master: TTL 3 s, renewed each second",
)
NODES = BucketSpec(
    name="exo_nodes",
    storage=Storage.MEMORY,
    max_bytes=8 * MIB,
    marker_ttl=30,
    description="which nodes are present: TTL 10 s",
)
SNAPSHOT = BucketSpec(
    name="exo_snapshot",
    storage=Storage.FILE,
    history=2,
    max_bytes=128 * MIB,
    description="State at a sequence of the event log",
)
BUCKETS: tuple[BucketSpec, ...] = (LEASE, NODES, SNAPSHOT)

BLOBS = ObjectStoreSpec(
    name="exo_blobs",
    storage=Storage.FILE,
    max_age=3600,
    max_bytes=2 * GIB,
    description="request bodies above 4 MB",
)

LEASE_TTL = 3
LEASE_RENEWAL = 1.0
PRESENCE_TTL = 10
PRESENCE_RENEWAL = 3.0
