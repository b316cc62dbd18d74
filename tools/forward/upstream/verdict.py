"""Judges errors of librdkafka for a link. Pure: codes and names in, a verdict out.

| verdict | codes | then |
|---|---|---|
| fenced | another producer with the transactional id | the link ends, unless it was silent until the upstream gave it up |
| refused | a record that the topic does not take | the topic stops, or the record goes to the dead-letter topic |
| topic | no such topic, no right to it | the topic stops and is looked at again |
| again | everything else: unreachable, not trusted, no right to the group, overloaded | backoff |
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

RECORD_CODES: Final = frozenset({2, 10, 18, 32, 87})
"""CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD."""
SIZE_CODES: Final = frozenset({10, 18})
TOPIC_CODES: Final = frozenset({3, 17, 29})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED."""
FENCED_CODES: Final = frozenset({47, 90})
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""
LOCAL_FENCED: Final = -144
LOCAL_UNKNOWN_TOPIC: Final = -188
LOCAL_UNKNOWN_PARTITION: Final = -190
PURGED: Final = frozenset({-151, -152})
"""Thrown away because something else went wrong: _PURGE_INFLIGHT, _PURGE_QUEUE."""
REFUSED: Final = frozenset({-169, -181, 33, 34, 58})
"""_AUTHENTICATION, _SSL, and what brokers say of logins: somebody has to do something."""
HOPELESS: Final = REFUSED | {-193}
"""With _RESOLVE: waiting any longer for a connection is of no use."""


class Verdict(enum.Enum):
    """The consequence of an error for a link."""

    FENCED = "fenced"
    REFUSED = "refused"
    TOPIC = "topic"
    AGAIN = "again"


def judge(code: int) -> Verdict:
    if code == LOCAL_FENCED or code in FENCED_CODES:
        return Verdict.FENCED
    if code in RECORD_CODES:
        return Verdict.REFUSED
    if code in TOPIC_CODES or code in (LOCAL_UNKNOWN_TOPIC, LOCAL_UNKNOWN_PARTITION):
        return Verdict.TOPIC
    return Verdict.AGAIN


def words(error: KafkaError) -> str:
    """Return the error as one readable line."""
    text = " ".join(error.str().split())
    name = error.name()
    return text if name in text or name.startswith("_") else f"{text} ({name})"
