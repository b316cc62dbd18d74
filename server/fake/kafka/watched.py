"""Test calls between a connection and the real calls: they log every request and carry out rules.

Without a watch a request costs one check of an attribute; with a watch and without rules it costs the logging. Faults of one
connection stay in its order: a delayed or held request holds up the requests after it, as on a slow broker.

Requests that failed with NOT_LEADER_OR_FOLLOWER get leader hints. Source: KIP-951; Kafka's KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import ApiKey, ServedBy
from ....protocol.kafka.connection import answer_buffers
from ....protocol.limits import INT16_MAX
from ....protocol.types import Bytes, TopicPartition
from ...listeners.kafka.door import NO_TOPIC_ID, KafkaDoor
from ...listeners.kafka.error_answers import element_of, error_codes, error_response
from ...listeners.kafka.session import TakeUp, Turn
from ...loop.reactor import Work
from ...system.clock import NowMs
from ..faults.faults import Fault, Faults
from ..faults.requests import LoggedRequest, RequestLog
from ..faults.rules import Intercept, Intercepted, Rule, Subject
from .nodes import TELL_OF_NODES, NodeDoor, is_elsewhere, refusal, tell
from .partial_errors import (
    SESSION_ERRORS,
    SHARING,
    IsAffected,
    affected,
    divide,
    failed_fetch,
    failed_metadata,
    failed_sharing,
    put_together,
    remember,
    shared_in_session,
    without,
)
from .request_facts import facts_of_request, facts_of_response
from .subjects import subject_of

PlaceById = tuple[bytes, int]
"""(topic id, partition)"""

MESSAGE: Final = "injected by a fault rule"
NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
FETCHES: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
FRAME_HEAD_BYTES: Final = 8
"""Length and correlation id."""


@attrs.define(eq=False, repr=False)
class Watch:
    """Notes the requests of a broker's listeners and applies fault rules to them. Owner: the opener of the listeners."""

    faults: Faults
    requests: RequestLog
    now_ms: NowMs
    old_formats: Mapping[PlaceById, Mapping[int, int]] = attrs.field(factory=dict)
    """See `OddLogs.old_formats`."""

    def take_up(self, door: KafkaDoor, turn: Turn, serve: TakeUp) -> Work | None:
        """Note a request in the log, then serve it or apply a rule to it."""
        request = turn.request
        subject = subject_of(request, door.node_id, door.broker.topics.named, _in_session(door, turn))
        if isinstance(door, NodeDoor):
            serve = partial(self._serve_as_node, door, serve)
        if self.old_formats and request.api.key is ApiKey.FETCH:
            serve = partial(self._serve_old_formats, door, serve)
        facts = facts_of_request(request.body, request.api.key, door.broker.topics.named)
        noted = self.requests.begin(self.now_ms(), request.version, subject, request.size_bytes, facts)
        turn.noted, turn.needs_body = partial(self._answered, door, turn, noted), True
        if self.faults.is_active and (fault := self.faults.decide(subject)) is not None:
            noted.fault = fault.number
            return FaultyCall(door, fault, turn, serve, subject).carry_out
        return serve(turn)

    def _serve_as_node(self, door: NodeDoor, serve: TakeUp, turn: Turn) -> Work | None:
        """Serve a request as one node of a cluster: refuse requests for another node."""
        request = turn.request
        key, body = request.api.key, request.body
        if (code := refusal(door, turn)) is not None:
            turn.answer(error_response(request.api, request.version, body, code))
            return None
        if request.api.served_by is ServedBy.LEADER and any(_elsewhere(door, turn)):
            message = f"node {door.number} does not lead the partition. Refresh Metadata to find its leader"
            return FailingCall(door, turn, serve, NOT_LEADER, partial(is_elsewhere, door), message).carry_out
        if key in TELL_OF_NODES:
            return partial(self._tell, door, turn, serve)
        return serve(turn)

    def _serve_old_formats(self, door: KafkaDoor, serve: TakeUp, turn: Turn) -> Work:
        from .old_formats import with_old_formats  # few tests have any

        async def fetch() -> None:
            turn.answer(with_old_formats(self.old_formats, door, await served(turn, serve, turn.request.body)))

        return fetch

    async def _tell(self, door: NodeDoor, turn: Turn, serve: TakeUp) -> None:
        body = turn.request.body
        turn.answer(tell(door, turn.request.api.key, body, await served(turn, serve, body)))

    def _answered(self, door: KafkaDoor, turn: Turn, noted: LoggedRequest, body: object | None) -> None:
        if body is None:
            self.requests.answered(noted, ())
        else:
            facts = facts_of_response(body, turn, door.broker.topics.named)
            self.requests.answered(noted, error_codes(body), facts)


def _in_session(door: KafkaDoor, turn: Turn) -> Iterator[tuple[str, int]]:
    """The partitions that a fetch continues without naming them."""
    key, body = turn.request.api.key, turn.request.body
    if key is ApiKey.FETCH and body.session_epoch > 0:
        for each in door.fetch_sessions.keys_of(body.session_id):
            with contextlib.suppress(RequestError):
                yield each.topic or door.broker.topics.named(each.topic_id), each.partition
    elif key is ApiKey.SHARE_FETCH and body.share_session_epoch > 0:
        for shared in shared_in_session(door, body):
            with contextlib.suppress(RequestError):
                yield door.broker.topics.named(shared.topic_id), shared.partition


def _elsewhere(door: NodeDoor, turn: Turn) -> Iterator[bool]:
    subject = subject_of(turn.request, door.number, door.broker.topics.named, _in_session(door, turn))
    return (is_elsewhere(door, topic, number) for topic, numbers in subject.topics.items() for number in numbers)


@attrs.define(eq=False, repr=False)
class CapturedTurn(Turn):
    """A turn whose answer is not sent but kept, for a fault to change it."""

    body: Any = None
    """None: the request has no answer."""
    done: trio.Event = attrs.field(factory=trio.Event)
    needs_body: bool = True

    def charge(self) -> int:
        """The turn counts that it stands for."""
        return 0

    def answer(self, body: object, buffers: list[Bytes] | None = None, errors: Sequence[int] | None = None) -> None:
        if not self.is_answered:
            self.body = body
            self.discard()

    def discard(self) -> None:
        self.is_answered = True
        self.done.set()


async def served(turn: Turn, serve: TakeUp, body: Any) -> Any:
    """The answer to a request with this body; None where there is none."""
    captured = CapturedTurn(turn.session, turn.request._replace(body=body))
    if (work := serve(captured)) is not None:
        await work()
    await captured.done.wait()
    return captured.body


@attrs.define(eq=False, repr=False)
class FailingCall:
    """A request that fails, as a whole or in some partitions. Owner: the connection's task."""

    door: KafkaDoor
    turn: Turn
    serve: TakeUp
    code: ErrorCode
    is_affected: IsAffected | None
    """None: all of it fails."""
    message: str = MESSAGE

    async def carry_out(self) -> None:
        """Answer with the error; for a produce with acks 0, end the connection."""
        body = await self.failed(None)
        if body is None:
            self.turn.session.fail(f"{self.turn.request.api.name} failed: {self.code.name}")
        else:
            self.turn.answer(body)

    async def failed(self, applied: Any) -> Any:
        """The response with the error; None where there is none. `applied`: the response without the rule."""
        return name_leaders(self.door, self.turn, await self._failed(applied))

    async def _failed(self, applied: Any) -> Any:
        request = self.turn.request
        api, version, body = request.api, request.version, request.body
        if body is None or (api.key is ApiKey.PRODUCE and not body.acks):
            return None
        if api.key is ApiKey.FETCH and self.code not in SESSION_ERRORS:
            return await self._failed_fetch(applied)
        if api.key is ApiKey.METADATA:
            return await self._failed_metadata(applied)
        if api.key in SHARING and self.is_affected is not None:
            return await self._failed_sharing(applied)
        if self.is_affected is None:
            return error_response(api, version, body, self.code, self.message)
        parts = divide(api.key, version, body, self.is_affected, self.door.broker.topics.named)
        if parts.failed is None:
            return applied or await served(self.turn, self.serve, body)
        if parts.served is None:
            return error_response(api, version, body, self.code, self.message)
        response = applied or await served(self.turn, self.serve, parts.served)
        return put_together(api, version, response, parts.failed, self.code, self.message)

    def _affects(self, topic: str, number: int | None) -> bool:
        return self.is_affected is None or self.is_affected(topic, number)

    async def _failed_fetch(self, applied: Any) -> Any:
        """A fetch response with the error in its partitions, as brokers send it; the fetch session continues."""
        request = copy.copy(self.turn.request.body)
        named = [(topic.topic, topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions]
        request.max_wait_ms = 0
        response = applied or await served(self.turn, self.serve, request)
        in_session = [(key.topic, key.topic_id, key.partition) for key in self.door.fetch_sessions.keys_of(response.session_id)]
        asked = [each for each in in_session or named if self._affects(self._topic_name(each[0], each[1]), each[2])]
        if not asked:
            response.error_code = int(self.code)
        return failed_fetch(response, asked, self.code)

    def _topic_name(self, name: str, topic_id: bytes) -> str:
        try:
            return name or self.door.broker.topics.named(topic_id)
        except RequestError:
            return topic_id.hex()

    async def _failed_sharing(self, applied: Any) -> Any:
        """A response to a share consumer with the error for partitions: acknowledgements for them are not applied, and they
        stay in its session.
        """
        request = self.turn.request

        def is_failed(topic_id: bytes, number: int) -> bool:
            return self._affects(self._topic_name("", topic_id), number)

        failed = affected(self.door, request.api.key, request.body, is_failed)
        if applied is None:
            applied = await served(self.turn, self.serve, without(request.api.key, request.body, failed))
            if request.api.key is ApiKey.SHARE_FETCH:
                remember(self.door, request.body, failed)
        return failed_sharing(applied, failed, self.code)

    async def _failed_metadata(self, applied: Any) -> Any:
        request = copy.copy(self.turn.request.body)
        request.allow_auto_topic_creation = False
        response = applied or await served(self.turn, self.serve, request)
        return failed_metadata(response, self._affects, self.code)


@attrs.define(eq=False, repr=False)
class FaultyCall:
    """A request on which a rule is carried out. Owner: the connection's task."""

    door: KafkaDoor
    fault: Fault[Rule]
    turn: Turn
    serve: TakeUp
    subject: Subject

    async def carry_out(self) -> None:
        rule = self.fault.rule
        body = None
        if rule.applied:
            body = await served(self.turn, self.serve, self.turn.request.body)
        await self._wait()
        if rule.disconnect:
            self.turn.session.fail(MESSAGE)
        elif rule.black_hole:
            await self._swallow()
        else:
            if rule.intercept is not None:
                body = await self._intercepted(rule.intercept, body)
            elif not rule.applied and rule.error is None:
                body = await served(self.turn, self.serve, self.turn.request.body)
            elif rule.error is not None:
                is_affected = self._is_affected if rule.is_about_partitions else None
                body = await FailingCall(self.door, self.turn, self.serve, rule.error, is_affected).failed(body)
            self._answer(body)

    async def _intercepted(self, ask: Intercept, applied: Any) -> Any:
        """The answer that the test's function gives, or the normal one when it gives None."""
        request = self.turn.request

        async def serve() -> Any:
            return applied or await served(self.turn, self.serve, request.body)

        api = request.api
        asked = Intercepted(self.subject, request.version, request.body, api.response, serve)
        answer = ask(asked)
        if inspect.isawaitable(answer):
            answer = await answer
        return await serve() if answer is None else answer

    def _is_affected(self, topic: str, number: int | None) -> bool:
        rule = self.fault.rule
        return rule.names(topic, rule.partition if number is None else number)

    async def _wait(self) -> None:
        """Wait as long as the rule says; the end of the connection ends the wait."""
        rule = self.fault.rule
        if rule.delay_ms:
            with self.turn.session.parked(rule.delay_ms / 1000, ends_with_peer=False):
                await trio.sleep_forever()
        if rule.hold and not self.fault.is_released:
            released = trio.Event()
            self.fault.watch(watcher := partial(self._look_at_release, released))
            try:
                with self.turn.session.parked(math.inf, ends_with_peer=False):
                    await released.wait()
            finally:
                self.fault.unwatch(watcher)

    def _look_at_release(self, released: trio.Event) -> None:
        if self.fault.is_released:
            released.set()

    async def _swallow(self) -> None:
        """Read and discard the client's bytes, without a response, until it closes the connection."""
        session = self.turn.session
        session.reactor.remove(session)  # this task alone reads from now on
        with session.parked(math.inf, ends_with_peer=False):
            try:
                while await session.transport.receive():
                    """Swallowed."""
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                """Close the connection without a response."""
        session.fail(MESSAGE)

    # ---- how it leaves -------------------------------------------------------------------------------------------------

    def _answer(self, body: Any) -> None:
        rule, turn = self.fault.rule, self.turn
        if body is None:
            if rule.error is not None:
                turn.session.fail(MESSAGE)  # so Kafka tells a producer with acks 0
            turn.discard()
            return
        if rule.throttle_ms and hasattr(body, "throttle_time_ms"):
            body.throttle_time_ms = rule.throttle_ms
        if rule.corrupt:
            turn.answer(body, self._corrupted(body))
        elif rule.truncate_to is not None:
            turn.answer(body, [b"".join(answer_buffers(turn.request, body))[: rule.truncate_to]])
            turn.session.stop_reading()
        else:
            turn.answer(body)

    def _corrupted(self, body: Any) -> list[Bytes]:
        """Fetched records with another last byte, so that their checksum is wrong; another response with every byte after its
        correlation id inverted.
        """
        request = self.turn.request
        has_records = False
        if request.api.key in FETCHES:
            for each in (each for topic in body.responses for each in topic.partitions if each.records):
                records = bytearray(each.records)
                records[-1] ^= 0xFF
                each.records, has_records = bytes(records), True
        data = b"".join(answer_buffers(request, body))
        if has_records:
            return [data]
        return [data[:FRAME_HEAD_BYTES], bytes(byte ^ 0xFF for byte in data[FRAME_HEAD_BYTES:])]


_UNKNOWN: Final = -1
_FIRST_VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}


def name_leaders(door: KafkaDoor, turn: Turn, response: Any) -> Any:
    """Put the leader of each partition that failed for want of one into the response, and the addresses of these nodes."""
    api = turn.request.api
    if response is None or turn.request.version < _FIRST_VERSIONS.get(api.key, INT16_MAX):
        return response
    is_produce = api.key is ApiKey.PRODUCE
    leaders = set()
    for topic in response.responses:
        for each in topic.partition_responses if is_produce else topic.partitions:
            if each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader_id, epoch = _leader(door, topic, each.index if is_produce else each.partition_index)
                each.current_leader = type(each.current_leader)(leader_id=leader_id, leader_epoch=epoch)
                leaders.add(leader_id)
    endpoint = element_of(api.response, "node_endpoints")
    named = [each for each in door.nodes(turn.session) if each.node_id in leaders]
    response.node_endpoints = [endpoint(node_id=each.node_id, host=each.host, port=each.port) for each in named]
    return response


def _leader(door: KafkaDoor, topic: Any, partition: int) -> tuple[int, int]:
    """Its number, and the epoch in which it leads."""
    try:
        if (topic_id := topic.topic_id) != NO_TOPIC_ID:
            name = door.broker.topics.named(topic_id)
        else:
            name = topic.name if hasattr(topic, "name") else topic.topic
        epoch = door.broker.reader.snapshot(TopicPartition(name, partition)).leader_epoch
    except RequestError:
        return _UNKNOWN, _UNKNOWN
    return door.leader_of(name, partition), epoch
