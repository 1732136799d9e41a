"""Message headers: only what the NATS server itself reads. All else is in the body (ADR 0010)."""

from exo.streams import subjects

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_TTL = "Nats-TTL"


def headers_of_fact(message_id: str) -> dict[str, str]:
    """Headers of a fact or command: written twice, it is stored once."""
    return {MESSAGE_ID: message_id}


def headers_of_decision(message_id: str, *, epoch_sequence: int) -> dict[str, str]:
    """Headers of a decision: refused by the server once a newer epoch record stands in the log.

    `epoch_sequence` is the sequence of the master's own `EpochStarted` record.
    """
    return {
        MESSAGE_ID: message_id,
        EXPECTED_SEQUENCE: str(epoch_sequence),
        EXPECTED_SUBJECT: subjects.EPOCH,
    }


def headers_of_epoch(message_id: str, *, last_epoch_sequence: int) -> dict[str, str]:
    """Headers of a new epoch record: a compare-and-set on the one before it (0: none)."""
    return {MESSAGE_ID: message_id, EXPECTED_SEQUENCE: str(last_epoch_sequence)}
