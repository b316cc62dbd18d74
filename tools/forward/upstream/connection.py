"""Configures librdkafka for the upstream, collects its reports on the connection for every client of a link, and judges its
errors: codes and names in, a verdict out.

| verdict | codes | then |
|---|---|---|
| fenced | another producer with the transactional id | the link ends, unless it was silent until the upstream gave it up |
| refused | a record that the topic does not take | the topic stops, or the record goes to the dead-letter topic |
| topic | no such topic, no right to it | the topic stops and is checked again later |
| again | everything else: unreachable, not trusted, no right to the group, overloaded | backoff |
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from ....protocol.limits import KIB, MIB
from ..errors import LinkStoppedError, TryAgainError
from ..pacing import Failure
from ..settings.link_settings import Delivery, LinkSettings, resolved

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

RECOVERY: Final = {"metadata.recovery.strategy": "none"}
"""librdkafka 2.16 that bootstraps anew when its only broker was away does not find the transaction coordinator again
(2026-11-25); sessions begin anew by themselves."""
KNOWS_RECOVERY: Final = 0x020B0000
"""The first version that has the setting."""
LIBRDKAFKA: Final = logging.getLogger("triolog.librdkafka")
"""What librdkafka says by itself, a line for each broken connection and more: for debugging. Links say what matters."""
LIBRDKAFKA.setLevel(logging.CRITICAL + 1)
QUEUE_BYTES: Final = 24 * MIB
"""Records that wait to be sent; they are copies."""
QUEUE_RECORDS: Final = 100_000
MAX_MESSAGE_BYTES: Final = 20 * MIB
BATCH_BYTES: Final = 1_000_000
"""librdkafka's own default; less where the upstream's topics take less."""
LINGER_MS: Final = 5
CALL_S: Final = 1.0
"""Of one blocking call; between two of them it is looked whether the link is to end, and what librdkafka has to say."""
CONNECT_S: Final = 10.0
ALL_BROKERS_DOWN: Final = -187
PASSING: Final = frozenset({-185, -195, ALL_BROKERS_DOWN})
"""_TIMED_OUT, _TRANSPORT: not always retriable by librdkafka's word, but only this call has failed."""

T = TypeVar("T")


def kafka_exception(error: KafkaException | SystemError) -> KafkaException:
    """Return the KafkaException that an error of confluent_kafka stands for; raise an error that is a bug.

    An error that a producer cannot recover from is raised where it is told. When another callback is called behind it, a
    SystemError comes of that. Such exceptions are never freed (2.16), so they must not keep frames, which would keep the
    producer and its threads.
    """
    from confluent_kafka import KafkaException

    found = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(found, KafkaException):
        raise error
    for each in (error, found):
        each.__traceback__ = each.__context__ = None
    return found


def _weight(error: KafkaError) -> int:
    """Rank an error: 2 when waiting is of no use, 1 when it explains why one broker is unreachable, 0 when all are."""
    return 2 if error.code() in HOPELESS else 0 if error.code() == ALL_BROKERS_DOWN else 1


@attrs.define(eq=False, repr=False)
class Notices:
    """The latest connection error from librdkafka. Callbacks in its threads write it; the link's thread reads it."""

    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _last: KafkaError | None = None

    def tell(self, error: KafkaError) -> None:
        with self._lock:
            if self._last is None or _weight(error) >= _weight(self._last):
                self._last = error

    def forget(self) -> None:
        with self._lock:
            self._last = None

    @property
    def is_hopeless(self) -> bool:
        return self._is_one_of(HOPELESS)

    @property
    def is_refused(self) -> bool:
        return self._is_one_of(REFUSED)

    def _is_one_of(self, codes: frozenset[int]) -> bool:
        with self._lock:
            return self._last is not None and self._last.code() in codes

    def explain(self, otherwise: str) -> str:
        """The reason behind a call that timed out."""
        with self._lock:
            return otherwise if self._last is None else words(self._last)


class UpstreamClients:
    """Makes clients of librdkafka for one link. Raises TryAgainError for secrets that cannot be read now."""

    def __init__(self, settings: LinkSettings, group: str, is_wanted: Callable[[], bool]) -> None:
        self._settings = settings
        self.group = group
        self.is_wanted = is_wanted
        """Whether it is still worth waiting."""
        self.notices = Notices()

    @property
    def to(self) -> str:
        """The upstream, for messages."""
        return self._settings.to

    @property
    def is_exactly_once(self) -> bool:
        return self._settings.delivery is Delivery.EXACTLY_ONCE

    @property
    def max_message_bytes(self) -> int:
        """The largest record that librdkafka accepts from the link."""
        return int(str(self._settings.kafka.get("message.max.bytes", MAX_MESSAGE_BYTES)))

    def producer(self, batch_bytes: int, refused: Callable[[Any, Any], None]) -> Producer:
        """Create a producer; one with a transactional id requires `init_transactions`."""
        from confluent_kafka import Producer

        own: dict[str, Any] = {
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": self.max_message_bytes,
            "queue.buffering.max.kbytes": max(QUEUE_BYTES, self.max_message_bytes + QUEUE_BYTES - MAX_MESSAGE_BYTES) // KIB,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "compression.type": self._settings.compression.value,
            "delivery.report.only.error": True,
            "on_delivery": refused,
        }
        if self.is_exactly_once:
            own |= {"transactional.id": self.group, "transaction.timeout.ms": self._settings.transaction_timeout_ms}
        return self._make(Producer, own)

    def consumer(self) -> Consumer:
        """Create a consumer that requests metadata and committed offsets, and reads no records."""
        from confluent_kafka import Consumer

        own = {
            "group.id": self.group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
        return self._make(Consumer, own)

    def admin(self) -> AdminClient:
        """Create a client that creates topics and describes their configuration."""
        from confluent_kafka.admin import AdminClient

        return self._make(AdminClient, {})

    def patiently(
        self, call: Callable[[float], T], poll: Callable[[], object], what: str, patience_s: float | None = None
    ) -> T:
        """`call(timeout)` again and again, until it has worked, `patience_s` (CONNECT_S) have passed, waiting is of no use, or
        the link is to end. Raises TryAgainError, LinkStoppedError."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + (CONNECT_S if patience_s is None else patience_s)
        while True:
            try:
                answer = call(CALL_S)
            except (KafkaException, SystemError) as exc:
                found = kafka_exception(exc)
                error = found.args[0]
                poll()
                passes = error.retriable() or error.code() in PASSING
                if not passes or self.notices.is_hopeless or not self.is_wanted() or time.monotonic() >= deadline:
                    raise self.failure(found, what) from None
            else:
                self.notices.forget()
                return answer

    def failure(self, error: KafkaException, what: str) -> TryAgainError | LinkStoppedError:
        """Build the error for an exception of librdkafka, with one clear line as its message."""
        found = error.args[0]
        if judge(found.code()) is Verdict.FENCED:
            return LinkStoppedError(self.fenced())
        reason = (
            words(found) if judge(found.code()) is not Verdict.AGAIN or found.code() > 0 else self.notices.explain(words(found))
        )
        return TryAgainError(f"{what} at {self._settings.to}: {reason}", self._kind(found))

    def _kind(self, error: KafkaError) -> Failure:
        """Return whether an error passes by itself or is a refusal."""
        is_refused = self.notices.is_refused if error.code() < 0 else not error.retriable()
        return Failure.REFUSED if is_refused or error.code() in REFUSED else Failure.PASSING

    def fenced(self) -> str:
        """Return the message for a link that another forwarder has fenced."""
        return (
            f"another forwarder took this link over: the upstream {self._settings.to} has fenced the "
            f"transactional id {self.group}. Let one process forward the link, or give the other another link "
            "name or node"
        )

    def _make(self, kind: Callable[..., T], own: Mapping[str, Any]) -> T:
        from confluent_kafka import KafkaException, libversion

        from ..errors import SettingsError

        try:
            theirs = resolved(self._settings.kafka)
        except ValueError as exc:
            raise TryAgainError(str(exc)) from exc
        config = {
            "client.id": self.group,
            "socket.keepalive.enable": True,
            **(RECOVERY if libversion()[1] >= KNOWS_RECOVERY else {}),
            **theirs,
            **own,
            "bootstrap.servers": self._settings.to,
            "error_cb": self.notices.tell,
            "logger": LIBRDKAFKA,
        }
        try:
            return kind(config)
        except KafkaException as exc:
            raise SettingsError(f"link {self._settings.name}: {exc.args[0].str()}") from exc


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
