"""Members of a share group. Each reads all partitions of its topic, whatever it is assigned, so that they meet. Of what it
acquires it accepts, gives back or rejects records, keeps some for longer, and says nothing of others until their locks end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import TopicPartition

from tests.support.kafka_wire import ask

from ..groups.events import Accepted, Acknowledges, Acquired, Dismissed, Heard, SessionEnded, Unanswered
from ..groups.lives import SHARED
from .inhabitant import KafkaConnection
from .members import BEAT_S, FENCED, NOBODY, SESSION_MS, Member
from .readers import id_of

HEARTBEAT_VERSION: Final = 1
VERSION: Final = 2
JOINS: Final = 0
LEAVES: Final = -1
FINAL: Final = -1
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Plan = list[int | None]
"""What is said of an offset in one turn after the other; None: nothing."""


@attrs.define(eq=False)
class ShareMember(Member):
    lives: int = 0
    is_unsure: bool = False
    session_epoch: int = 0
    held: dict[TopicPartition, dict[int, Plan]] = attrs.field(factory=dict)
    numbers: int = 0
    refused: set[TopicPartition] = attrs.field(factory=set)
    """Of which it was told last that what comes next is damaged."""
    is_calm: bool = False
    """It accepts everything, without delay, but for what it has been given first."""
    calm_fetches: int = 0
    """Since nothing goes wrong any more, those in which it was given something."""
    idle_turns: int = 0

    def __attrs_post_init__(self) -> None:
        self.kafka = KafkaConnection(self.world, on_end=self._session_ended)

    async def live(self, for_ms: int, ends: str) -> None:
        until = trio.current_time() + for_ms / 1000
        while trio.current_time() < until:
            await self.turn()
            await trio.sleep(self.rng.uniform(0.2, 1.0) * BEAT_S)
        if ends == "leave" and self.epoch != NOBODY:
            await self._leave()
        if ends != "stay":
            await self._forget_session()
            self.epoch, self.member_id, self.until_ms = NOBODY, "", -1

    async def stay(self, is_over: trio.Event) -> None:
        """Live in a world in which nothing goes wrong."""
        self.is_calm = True
        while not is_over.is_set():
            await self.turn()
            await trio.sleep(BEAT_S)
        await self.kafka.close()

    async def turn(self) -> None:
        """Be heard of, say what there is to say, and take more."""
        if not await self._beat():
            return
        if self.rng.random() < 0.03 and not self.is_calm:
            await trio.sleep(SESSION_MS / 1000 + 1)
        said = self._all_due()
        is_renewal = any(kind == RENEW for each in said.values() for _, kind in each)
        if said and (is_renewal or self.rng.random() < 0.5):
            await self._acknowledge(said, is_renewal=is_renewal)
            said = {}
        if said or sum(map(len, self.held.values())) < 30:
            await self._fetch(said)

    async def _beat(self) -> bool:
        is_joining, begun_ms = self.epoch == NOBODY, self.world.at_ms()
        if is_joining:
            self.lives += 1
            self.member_id = self.member_id or f"{self.who} {self.lives}"
        said = {"member_epoch": JOINS if is_joining else self.epoch, "subscribed_topic_names": [SHARED] if is_joining else None}
        answer = await self._call(self._request("ShareGroupHeartbeat", **said), HEARTBEAT_VERSION)
        if answer is None:
            self.is_unsure = True
            return False
        error = ErrorCode(answer.error_code)
        if error:
            if error in FENCED:
                is_explained = self.is_unsure and error is not ErrorCode.UNKNOWN_MEMBER_ID
                self.world.add(Dismissed(**self.me(), error=error.name, is_explained=is_explained))
                await self._forget_session()
                self.epoch, self.until_ms = NOBODY, -1
            return False
        self.epoch, self.until_ms, self.is_unsure = answer.member_epoch, begun_ms + SESSION_MS, False
        self.world.add(Heard(**self.me(), begun_ms=begun_ms, until_ms=self.until_ms))
        return True

    async def _leave(self) -> None:
        """As Java's consumer does, or as librdkafka's: it leaves, and acknowledges after that."""
        leaves_first = self.rng.random() < 0.5
        if leaves_first:
            await self._call(self._request("ShareGroupHeartbeat", member_epoch=LEAVES), HEARTBEAT_VERSION)
            if self.session_epoch and (said := self._all_due()):
                is_renewal = any(kind == RENEW for each in said.values() for _, kind in each)
                await self._acknowledge(said, is_renewal=is_renewal)
        if self.session_epoch:
            self._session_ended()
            await self.kafka.call(self._request("ShareAcknowledge", share_session_epoch=FINAL), VERSION)
        if not leaves_first:
            await self.kafka.call(self._request("ShareGroupHeartbeat", member_epoch=LEAVES), HEARTBEAT_VERSION)

    def _request(self, api: str, **fields: Any) -> Any:
        return ask(api, group_id=self.group, member_id=self.member_id, **fields)

    async def _call(self, request: object, version: int) -> Any | None:
        """A call that is lost takes the connection with it, and the session."""
        answer = await self.kafka.call(request, version)
        if answer is None:
            await self._forget_session()
        return answer

    def _session_ended(self) -> None:
        if self.session_epoch:
            self.world.add(SessionEnded(**self.me()))

    async def _forget_session(self) -> None:
        await self.kafka.close()
        self.session_epoch = 0
        self.held.clear()

    def _all_due(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        return {where: list(each) for where in self.held if (each := dict(self._due(where)).items())}

    def _due(self, where: TopicPartition) -> Iterator[tuple[int, int]]:
        """What is said of offsets now."""
        held = self.held[where]
        for offset in list(held):
            kind = held[offset].pop(0) if held[offset] else None
            if kind is not None:
                yield offset, kind
                if kind != RENEW:
                    del held[offset]

    async def _acknowledge(self, said: Mapping[TopicPartition, list[tuple[int, int]]], *, is_renewal: bool) -> None:
        numbers = self._says(said)
        parts = [
            {"partition_index": where.partition, "acknowledgement_batches": _batches(each)} for where, each in said.items()
        ]
        topics = [{"topic_id": self.world.topic_ids[SHARED], "partitions": parts}]
        session = {"share_session_epoch": self.session_epoch, "is_renew_ack": is_renewal}
        answer = await self._call(self._request("ShareAcknowledge", **session, topics=topics), VERSION)
        if answer is not None and not answer.error_code:
            self.session_epoch += 1
            codes = {each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions}
        else:
            codes = None
        await self._settled(numbers, answer, codes)

    def _says(self, said: Mapping[TopicPartition, list[tuple[int, int]]]) -> dict[TopicPartition, int]:
        numbers = {}
        for where, each in said.items():
            self.numbers += 1
            numbers[where] = self.numbers
            self.world.add(Acknowledges(**self.me(), number=self.numbers, partition=where, said=tuple(each)))
        return numbers

    async def _settled(self, numbers: dict[TopicPartition, int], answer: Any, codes: dict[int, int] | None) -> None:
        for where, number in numbers.items():
            if codes is None:
                error = None if answer is None else ErrorCode(answer.error_code)
            else:
                error = ErrorCode(codes[where.partition]) if where.partition in codes else ErrorCode.UNKNOWN_SERVER_ERROR
            is_kept = None if error is None else True if not error else False if error in REFUSED else None
            self.world.add(Accepted(**self.me(), number=number, is_kept=is_kept, error="" if error is None else error.name))
        if answer is not None and answer.error_code:
            await self._forget_session()

    async def _fetch(self, said: Mapping[TopicPartition, list[tuple[int, int]]]) -> None:
        begun_ms, numbers = self.world.at_ms(), self._says(said)
        answer = await self._call(self._fetch_request(said), VERSION)
        if answer is None:
            self.world.add(Unanswered(**self.me()))
        if answer is None or answer.error_code:
            await self._settled(numbers, answer, None)
            return
        self.session_epoch += 1
        found = [each for topic in answer.responses for each in topic.partitions]
        self.idle_turns = 0 if any(each.acquired_records for each in found) else self.idle_turns + 1
        self.calm_fetches += self.is_calm and not self.idle_turns
        codes = {each.partition_index: each.acknowledge_error_code for each in found}
        await self._settled(numbers, answer, codes)
        self.refused = {
            TopicPartition(SHARED, each.partition_index) for each in found if each.error_code == ErrorCode.CORRUPT_MESSAGE
        }
        for each in found:
            self._take(TopicPartition(SHARED, each.partition_index), each, begun_ms)

    def _fetch_request(self, said: Mapping[TopicPartition, list[tuple[int, int]]]) -> Any:
        is_first = self.session_epoch == 0
        wheres = [TopicPartition(SHARED, number) for number in range(self.world.partitions[SHARED])]
        parts = [
            {"partition_index": where.partition, "acknowledgement_batches": _batches(said.get(where, []))}
            for where in wheres
            if is_first or where in said
        ]
        return self._request(
            "ShareFetch",
            share_session_epoch=self.session_epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=self.rng.choice((300, 10**6)),
            max_records=100 if self.is_calm else self.rng.choice((1, 5, 20)),
            batch_size=self.rng.choice((1, 5, 100)),
            share_acquire_mode=self.rng.randrange(2),
            topics=[{"topic_id": self.world.topic_ids[SHARED], "partitions": parts}] if parts else [],
        )

    def _take(self, where: TopicPartition, found: Any, begun_ms: int) -> None:
        ids = {
            record.offset: id_of(record)
            for header, batch in iter_batches(bytes(found.records or b""))
            if not header.is_control
            for record in iter_records(batch, header)
        }
        for each in found.acquired_records:
            offsets = range(each.first_offset, each.last_offset + 1)
            self.world.add(
                Acquired(
                    **self.me(),
                    partition=where,
                    first=each.first_offset,
                    last=each.last_offset,
                    delivery_count=each.delivery_count,
                    begun_ms=begun_ms,
                    ids=tuple((offset, ids[offset]) for offset in offsets if offset in ids),
                )
            )
            plans = self._plans(len(offsets))
            held = self.held.setdefault(where, {})
            for offset, plan in zip(offsets, plans, strict=True):
                if plan:
                    held[offset] = plan if offset in ids else [GAP]

    def _plans(self, count: int) -> list[Plan]:
        """What it is going to say of so many offsets; without a plan it has them until their locks end."""
        style = self.rng.choice(("accept", "accept", "mixed", "mixed", "late", "renew", "never"))
        if self.is_calm:
            style = "never" if self.calm_fetches == 1 else "accept"
        if style == "mixed":
            return [[self.rng.choice((ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT))] for _ in range(count)]
        plan: Plan = {"accept": [ACCEPT], "late": [None, None, ACCEPT], "renew": [None, RENEW, ACCEPT], "never": []}[style]
        return [list(plan) for _ in range(count)]


REFUSED: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)
"""Errors after which what was said is certainly not so."""


def _batches(said: list[tuple[int, int]]) -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = []
    for offset, kind in sorted(said):
        if batches and batches[-1]["last_offset"] == offset - 1:
            batches[-1]["last_offset"] = offset
            batches[-1]["acknowledge_types"].append(kind)
        else:
            batches.append({"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]})
    return batches
