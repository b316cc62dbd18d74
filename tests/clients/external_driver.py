"""Clients of other languages: a program that drives one of them, as a driver like those of Python.

The program lives as long as the session, and gets a line of JSON for each question, with the servers; bytes are Base64.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import attrs

from tests.clients.driver import DEADLINE_S, Access, Given, Message, Producing, Received, Said


def _coded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _sent(message: Message) -> dict[str, Any]:
    return {
        "partition": message.partition,
        "timestamp": -1 if message.timestamp_ms is None else message.timestamp_ms,
        "key": _coded(message.key),
        "value": _coded(message.value),
        "headers": [{"key": key, "value": _coded(value)} for key, value in message.headers],
    }


def received(record: dict[str, Any]) -> Received:
    """A record as the programs write it."""
    return Received(
        partition=record["partition"],
        offset=record["offset"],
        timestamp_ms=record["timestamp"],
        key=_decoded(record["key"]),
        value=_decoded(record["value"]),
        headers=tuple((header["key"], _decoded(header["value"])) for header in record["headers"]),
    )


@attrs.define(eq=False)
class ExternalProducer:
    driver: ExternalDriver
    name: str
    acks: str = "all"

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        records = [_sent(message) for message in messages]
        return list(self.driver.ask("send", name=self.name, topic=topic, records=records, acks=self.acks))

    def begin(self) -> None:
        self.driver.ask("begin", name=self.name)

    def end(self, *, commit: bool) -> None:
        self.driver.ask("end", name=self.name, committed=commit)


@attrs.define(eq=False)
class ExternalMember:
    """A consumer of a group, which polls by itself."""

    driver: ExternalDriver
    name: str

    def assigned(self, count: int) -> tuple[set[int], int]:
        answer = self.driver.ask("assigned", name=self.name, count=count)
        return set(answer["partitions"]), answer["revoked"]

    def received(self, count: int) -> list[Received]:
        return [received(record) for record in self.driver.ask("received", name=self.name, count=count)]

    def commit(self) -> None:
        self.driver.ask("commit", name=self.name)

    def leave(self) -> None:
        self.driver.gone(self)
        self.driver.ask("leave", name=self.name)


@attrs.define(eq=False)
class ExternalSharer:
    """A consumer of a share group with a name within its program."""

    driver: ExternalDriver
    name: str

    def poll(self) -> list[Given]:
        given = self.driver.ask("share_poll", name=self.name)
        return [Given(each["partition"], each["offset"], _decoded(each["value"]), each["deliveries"]) for each in given]

    def acknowledge(self, said: Sequence[Said] = ()) -> list[str]:
        return list(self.driver.ask("share_acknowledge", name=self.name, said=said))

    def leave(self) -> None:
        self.driver.ask("share_leave", name=self.name)


@attrs.define(eq=False)
class ExternalDriver:
    program: ExternalProgram
    bootstrap: str
    access: Access = attrs.field(factory=Access)
    _names: Iterator[int] = attrs.field(factory=itertools.count)
    _members: dict[str, ExternalMember] = attrs.field(factory=dict)

    def ask(self, op: str, **arguments: Any) -> Any:
        return self.program.ask(op, servers=self.bootstrap, access=attrs.asdict(self.access), **arguments)

    @contextmanager
    def producer(self, **wanted: Any) -> Iterator[ExternalProducer]:
        asked = Producing(**wanted)
        name = f"producer-{id(self)}-{next(self._names)}"
        self.ask("open", name=name, **{**attrs.asdict(asked), "max_bytes": asked.max_bytes or 0})
        try:
            yield ExternalProducer(self, name, asked.acks)
        finally:
            self.ask("close", name=name)

    def member(self, group: str, topic: str, *, instance: str = "", assignor: str = "range") -> ExternalMember:
        name = f"member-{id(self)}-{next(self._names)}"
        self.ask("join", name=name, group=group, topic=topic, instance=instance, assignor=assignor, committed=True)
        self._members[name] = ExternalMember(self, name)
        return self._members[name]

    def sharer(self, group: str, topic: str, *, explicit: bool = True) -> ExternalSharer:
        name = f"sharer-{id(self)}-{next(self._names)}"
        self.ask("share_join", name=name, group=group, topic=topic, explicit=explicit)
        return ExternalSharer(self, name)

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        self.ask("share_configure", group=group, configs=dict(configs))

    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]:
        found = self.ask("consume", topic=topic, count=count, offsets=_by_partition(starts), committed=committed)
        return [received(record) for record in found]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = self.ask("offset_at", topic=topic, partition=partition, timestamp=timestamp_ms)
        return None if found is None else int(found)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = self.ask("bounds", topic=topic, partition=partition)
        return first, end

    def partitions(self, topic: str) -> set[int]:
        return set(self.ask("partitions", topic=topic))

    def transform(self, group: str, source: str, target: str, count: int, *, transactional_id: str, commit: bool) -> None:
        topics = {"topic": source, "target": target, "offsets": {"0": 0}}
        self.ask("transform", group=group, count=count, transactional_id=transactional_id, committed=commit, **topics)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self.ask("committed", group=group, topic=topic)
        return {int(partition): offset for partition, offset in found.items()}

    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        self.ask("reset", group=group, topic=topic, offsets=_by_partition(offsets))

    def group(self, group: str) -> tuple[str, int]:
        found = self.ask("describe_group", group=group)
        return found["state"], found["members"]

    def delete_group(self, group: str) -> None:
        self.ask("delete_group", group=group)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.ask("create_topic", topic=topic, partitions=partitions, configs=dict(configs))

    def delete_topic(self, topic: str) -> None:
        self.ask("delete_topic", topic=topic)

    def add_partitions(self, topic: str, total: int) -> None:
        self.ask("add_partitions", topic=topic, partitions=total)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.ask("describe_configs", topic=topic))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.ask("alter_configs", topic=topic, configs=dict(configs))

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        self.ask("delete_records", topic=topic, offsets=_by_partition(before))

    def gone(self, member: ExternalMember) -> None:
        self._members.pop(member.name, None)

    def close(self) -> None:
        for member in list(self._members.values()):
            member.leave()


def _by_partition(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


ASK_DEADLINE_S: Final = 2 * DEADLINE_S
"""The programs give up by themselves after half of the first minute; this is for those that hang."""
READ_BYTES: Final = 1 << 20
QUESTION_SHOWN: Final = 500
"""Characters of a question that got no answer."""


class ExternalError(Exception):
    """What the client said."""


@attrs.define(eq=False)
class ExternalProgram:
    """A running program. Owner: whoever started it. One thread asks."""

    name: str
    _process: subprocess.Popen[bytes]
    _ids: Iterator[int] = attrs.field(factory=itertools.count)
    _unread: bytearray = attrs.field(factory=bytearray)

    @classmethod
    @contextmanager
    def running(cls, name: str, command: Sequence[str]) -> Iterator[Self]:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            try:
                yield cls(name, process)
                process.stdin.close()
                process.wait(DEADLINE_S)
            finally:
                process.kill()

    def ask(self, op: str, **arguments: Any) -> Any:
        """One operation, to its end. Raises ExternalError with what the client says; a program that says nothing in time is
        ended, so that its answer is not taken for that of the next question."""
        asked = next(self._ids)
        question = json.dumps({"id": asked, "op": op, **arguments})
        try:
            self._process.stdin.write(question.encode() + b"\n")
            line = self._line(ASK_DEADLINE_S)
        except BrokenPipeError:
            line = b""
        except TimeoutError:
            self._process.kill()
            raise TimeoutError(f"{self.name} did not answer within {ASK_DEADLINE_S:g} s: {question[:QUESTION_SHOWN]}") from None
        assert line, f"{self.name} ended with {self._process.wait(DEADLINE_S)} at {op}"
        answer = json.loads(line)
        assert answer["id"] == asked
        if answer.get("error"):
            raise ExternalError(f"{self.name}: {op}: {answer['error']}")
        return answer.get("result")

    def _line(self, deadline_s: float) -> bytes:
        """The next line of the program, b"" when it has ended. Raises TimeoutError."""
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + deadline_s
        while (end := self._unread.find(b"\n")) < 0:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            more = os.read(output, READ_BYTES)
            if not more:
                return b""
            self._unread += more
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        return line
