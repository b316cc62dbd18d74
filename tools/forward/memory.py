"""The state that a link keeps from one session to the next; requests to it, which any thread may make and which wake the link's
thread; and the ids of the topics that it has forwarded.

A topic that was deleted and created again has another id. Deleting it also deletes the offsets that the link committed for it
in the source, and with them the only trace of the old topic. So the link's own directory keeps the ids, in a JSON object from
name to id. Without a directory the ids live as long as the process.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ...protocol.types import TopicPartition
from ...server.system import syncs
from .errors import NO_SUCH_TOPIC
from .pacing import StretchSize
from .progress import LinkProgress
from .settings.link_settings import Delivery, LinkSettings
from .source.source import Source
from .upstream.connection import BATCH_BYTES

LOGGER: Final = logging.getLogger(__name__)
MAX_FILE_BYTES: Final = 16 * 1024 * 1024


@attrs.define(eq=False, repr=False)
class TopicIds:
    """Owner: the link's thread."""

    path: Path | None = None
    _ids: dict[str, str] | None = None

    def known(self, topic: str) -> str | None:
        """The id of the topic of that name that was forwarded; None where none was, as far as is known."""
        return self._read().get(topic)

    def note(self, ids: Mapping[str, str]) -> None:
        """These are forwarded. What cannot be written is logged, and known until the process ends."""
        known = self._read()
        if all(known.get(name) == topic_id for name, topic_id in ids.items()):
            return
        known.update(ids)
        if self.path is None:
            return
        temporary = self.path.with_suffix(".tmp")
        try:
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as stream:
                json.dump(known, stream)
                stream.flush()
                syncs.sync_file(stream.fileno())
            temporary.replace(self.path)
        except OSError as exc:
            LOGGER.error(
                "cannot write %s: %s. A topic that is created again while this link is down is not noticed.", self.path, exc
            )

    def _read(self) -> dict[str, str]:
        if self._ids is None:
            self._ids = {} if self.path is None else _ids_in(self.path)
        return self._ids


def _ids_in(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as stream:
            found = json.loads(stream.read(MAX_FILE_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        LOGGER.error("cannot read %s, starting again with the existing topics: %s", path, exc)
        return {}
    return {name: topic_id for name, topic_id in found.items() if isinstance(topic_id, str)} if isinstance(found, dict) else {}


FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 600.0


@attrs.define
class _Trouble:
    message: str
    again_s: float
    pause_s: float


class Troubles:
    """Topics of a link that cannot go on, why, and when it is looked at them again, in monotonic seconds. Owner: the link, so
    that a new connection does not run into the same again at once."""

    def __init__(self) -> None:
        self._topics: dict[str, _Trouble] = {}

    @property
    def messages(self) -> Mapping[str, str]:
        return {topic: trouble.message for topic, trouble in self._topics.items()}

    def blocks(self, topic: str, now_s: float) -> bool:
        """Return whether the link has to leave the topic alone for now. It begins with a missing topic once that exists."""
        trouble = self._topics.get(topic)
        return trouble is not None and now_s < trouble.again_s and trouble.message != NO_SUCH_TOPIC

    def is_due(self, now_s: float) -> bool:
        """Return whether some stopped topic is due for another check, which interrupts the others. A missing one never is: the
        link looks at the source's topics anyway."""
        return any(trouble.again_s <= now_s and trouble.message != NO_SUCH_TOPIC for trouble in self._topics.values())

    def add(self, topic: str, message: str, now_s: float) -> bool:
        """It cannot go on; True when that is news. The pause until the next look doubles."""
        before = self._topics.get(topic)
        pause_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, before.pause_s * 2)
        self._topics[topic] = _Trouble(message, now_s + pause_s, pause_s)
        return before is None or before.message != message

    def look_now(self, now_s: float) -> None:
        """Somebody says that it may be over."""
        for trouble in self._topics.values():
            trouble.again_s, trouble.pause_s = now_s, FIRST_PAUSE_S

    def gone(self, topic: str) -> None:
        """It goes on, or is not there any more."""
        self._topics.pop(topic, None)


BURST_S: Final = 0.2
"""What may go at once, in time at the rate: records that go one by one would be batches of one."""


class RateCap:
    """A cap on bytes a second, kept on the average: what is sent at once is paid for before more may follow.

    Virtual scheduling (the generic cell rate algorithm of ATM): one number, the time at which everything sent so far is paid
    for. Asked before a record, told after it. Owner: the link.
    """

    __slots__ = ("_bytes_per_second", "_paid_s")

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._paid_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Return the seconds to wait before the next record; 0: it may go."""
        owed_s = self._paid_s - now_s
        return owed_s if owed_s > BURST_S else 0.0

    def sent(self, size: int, now_s: float) -> None:
        """So many bytes have gone."""
        self._paid_s = max(self._paid_s, now_s) + size / self._bytes_per_second


NO_LIMIT: Final = 2**62
CAREFUL_RECORDS: Final = 1024
"""As many records in a row without a refusal, and a partition is trusted again."""

CUT: Final = 8


class Caution:
    """The largest number of a partition's records that may go together, to find the one that an upstream refuses among many.

    Errors are answered for a batch. After a refusal the partition's next stretch has an eighth of the records, and so on down
    to one: if that is refused it is the one. What goes well meanwhile is committed, and the stretches grow again. A refusal
    costs a session, which takes longer than eight commits do. Owner: the link.
    """

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[str, int], int] = {}

    def limit(self, partition: tuple[str, int]) -> int:
        return self._limits.get(partition, NO_LIMIT)

    def is_careful(self, partition: tuple[str, int]) -> bool:
        return partition in self._limits

    def refused(self, partition: tuple[str, int], sent: int) -> bool:
        """Some of `sent` records were; True when that is one record, which it must have been."""
        self._limits[partition] = max(1, min(sent, CAREFUL_RECORDS) // CUT)
        return sent == 1

    def accepted(self, partition: tuple[str, int], sent: int) -> None:
        """So many were taken."""
        limit = self._limits.get(partition)
        if limit is None or sent < limit:
            return
        if limit * 2 > CAREFUL_RECORDS:
            del self._limits[partition]
        else:
            self._limits[partition] = limit * 2


GROUP: str = "triolog-forward.{node}.{link}"
"""The group whose offsets say how far a link is, here and upstream, and the transactional id."""


@attrs.define(eq=False, repr=False, kw_only=True)
class LinkMemory:
    """Owner: the link's thread; `wishes` and `progress` belong to everybody."""

    settings: LinkSettings
    node: str
    source: Source
    wishes: Wishes
    progress: LinkProgress
    claims: Any
    """Which link of this process sends to which topic upstream."""
    size: StretchSize
    topic_ids: TopicIds = attrs.field(factory=TopicIds)
    """Of the topics that were forwarded."""
    caution: Caution = attrs.field(factory=Caution)
    troubles: Troubles = attrs.field(factory=Troubles)
    cap: RateCap | None = None
    batch_bytes: int = BATCH_BYTES
    refused: dict[TopicPartition, dict[int, str]] = attrs.field(factory=dict)
    """Records that the upstream does not take, and why."""
    begun: dict[TopicPartition, int | None] = attrs.field(factory=dict)
    """Where partitions began of which nothing was noted; None for those of which something was."""

    @property
    def group(self) -> str:
        return GROUP.format(node=self.node, link=self.settings.name)

    @property
    def is_exactly_once(self) -> bool:
        return self.settings.delivery is Delivery.EXACTLY_ONCE

    def publish_troubles(self) -> None:
        """Let people see them."""
        self.progress.troubled(self.troubles.messages)


GRACE_S: Final = 5.0
"""How long a link that is to end may go on committing what it has handed over."""


class Wishes:
    """Thread-safe."""

    def __init__(self, *, paused: bool = False, drain_and_end: bool = False) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._is_paused = paused
        self._stop_s: float | None = None
        self._drain_s: float | None = time.monotonic() if drain_and_end else None
        self.ends_when_drained: Final = drain_and_end

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_stopping(self) -> bool:
        return self._stop_s is not None

    @property
    def drains_since_s(self) -> float | None:
        """Since when everything is to go, in monotonic seconds; None: it goes as always."""
        return self._drain_s

    def is_patient(self) -> bool:
        """Return whether time is left to wait for the upstream."""
        return self._stop_s is None or time.monotonic() < self._stop_s + GRACE_S

    def pause(self) -> None:
        with self._changed:
            self._is_paused = True
            self._drain_s = None
            self._tell()

    def resume(self) -> None:
        with self._changed:
            self._is_paused = False
            self._tell()

    def stop(self) -> None:
        with self._changed:
            if self._stop_s is None:
                self._stop_s = time.monotonic()
            self._tell()

    def drain(self) -> None:
        with self._changed:
            self._drain_s = time.monotonic()
            self._tell()

    def drained(self, since_s: float | None = None) -> None:
        """Told by the link: nothing is left of what was there at `since_s`. Or, without it, nobody waits any longer."""
        with self._changed:
            if since_s in (None, self._drain_s):
                self._drain_s = None

    @property
    def version(self) -> int:
        """Another one when somebody wants something else."""
        return self._version

    def wait(self, timeout_s: float, seen: int) -> bool:
        """Until the version is no longer the one that was `seen`, or so long. True when it is another one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != seen, max(0.0, timeout_s))

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()
