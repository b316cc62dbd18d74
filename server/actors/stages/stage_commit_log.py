"""What applications have committed of staged records: the records of `__stage_commits`, and whose turn it is.

The log is compacted and always synced. What is in memory is what a replay of it gives. A log that cannot be read to its end
says nothing of any application, because what is behind the damage may be newer: then nothing is answered, nor forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from ....protocol.coordinator.stage_commits import (
    STAGE_COMMITS_TOPIC,
    StageCommitPartition,
    StageCommitValue,
    decode_stage_commit_key,
    decode_stage_commit_value,
    encode_stage_commit_key,
)
from ....protocol.errors import RequestError
from ....protocol.limits import MIB
from ....protocol.records.builder import build_batch
from ....protocol.types import TopicPartition
from ...storage.errors import LogOfflineError
from ...system.client_memory import Account, deep_bytes
from ...system.clock import NowMs
from ..coordinators.internal_topic import INTERNAL_TOPIC_CONFIG, InternalTopic
from ..manager.log_manager import LogManager
from ..partition.flusher import flush

LOGGER: Final = logging.getLogger(__name__)

MAX_COMMIT_RECORD_BYTES: Final = 16 * MIB
"""Room for the files that a request of 262,144 objects can name."""

APPLICATION_BYTES: Final = 1_500
"""An application, without its name and its last commit."""
TOPIC_CONFIG: Final = INTERNAL_TOPIC_CONFIG | {
    "durability": "fsync",
    "max.message.bytes": str(MAX_COMMIT_RECORD_BYTES),
}


@attrs.define(eq=False, repr=False)
class Application:
    """One application. Owner: whoever is inside its turn; `value` changes when its record is stored."""

    name: str
    value: StageCommitValue | None = None
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0
    """Who has it in hand or waits for its turn."""
    retry_at: float = 0.0
    finished: dict[TopicPartition, StageCommitPartition] = attrs.field(factory=dict)
    """Partitions of a decided commit that have all of their records, as far as we know."""


@attrs.define(eq=False, repr=False)
class StageCommitLog:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _topic: InternalTopic
    applications: dict[str, Application] = attrs.field(factory=dict)
    decided: set[str] = attrs.field(factory=set)
    """Applications whose last commit is not done."""
    _unreadable: RequestError | None = None

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> StageCommitLog:
        return cls(InternalTopic(manager, now_ms, STAGE_COMMITS_TOPIC, 1, TOPIC_CONFIG))

    async def load(self) -> None:
        """Read the log. One that cannot be read answers with the reason from then on."""
        if STAGE_COMMITS_TOPIC not in self._topic.manager.topics:
            return

        async def read() -> dict[str, StageCommitValue]:
            values: dict[str, StageCommitValue] = {}
            for number in range(self._topic.partitions):
                place = TopicPartition(STAGE_COMMITS_TOPIC, number)
                values |= await self._topic.replay_newest(place, decode_stage_commit_key, decode_stage_commit_value)
            return values

        values = await self._topic.load(read, "the commits of staged records", STAGE_COMMITS_TOPIC)
        if isinstance(values, LogOfflineError):
            self._unreadable = values
            return
        self._unreadable = None
        for name, value in values.items():
            self.applications[name] = Application(name, value)
            self._account.put(name, _bytes_of(name, value))
            if not value.is_done:
                self.decided.add(name)

    @property
    def _account(self) -> Account:
        return self._topic.manager.client_memory.account("commits of staged tasks")

    @property
    def is_readable(self) -> bool:
        """Whether it is known what was committed."""
        return self._unreadable is None

    def check_readable(self) -> None:
        """Raises LogOfflineError."""
        if self._unreadable is not None:
            raise self._unreadable.as_answer()

    async def ensure(self) -> None:
        """Make the topic if it is not there. Raises RequestError."""
        await self._topic.ensure()

    @asynccontextmanager
    async def turn(self, application: str) -> AsyncIterator[Application]:
        """The commits of one application come one after the other."""
        owner = self.applications.setdefault(application, Application(application))
        owner.users += 1
        try:
            async with owner.turn:
                yield owner
        finally:
            owner.users -= 1
            if owner.value is None and not owner.users:
                del self.applications[application]

    async def store(self, owner: Application, value: StageCommitValue | None) -> None:
        """Write the application's next record; None: it is forgotten. On the device when this returns. Raises RequestError:
        then `owner.value` says whether it is stored, unless it is a LogOfflineError: a restart may find it or not."""
        size = 0 if value is None else _bytes_of(owner.name, value)
        if value is not None and not value.is_done:
            self._account.check(owner.name, size - self._account.size_of(owner.name))
        record = (self._topic.now_ms(), encode_stage_commit_key(owner.name), None if value is None else value.encode(), ())

        def on_stored(_: object) -> None:
            owner.value = value
            if value is None:
                self._account.drop(owner.name)
            else:
                self._account.put(owner.name, size)
            if value is None or value.is_done:
                self.decided.discard(owner.name)
            else:
                self.decided.add(owner.name)

        place = TopicPartition(STAGE_COMMITS_TOPIC, self._topic.partition_of(owner.name).partition)
        await self._topic.append(place, build_batch([record]), on_stored)
        await self._topic.actor(place).perform(flush)


def _bytes_of(name: str, value: StageCommitValue) -> int:
    return APPLICATION_BYTES + deep_bytes(name) + deep_bytes(value)
