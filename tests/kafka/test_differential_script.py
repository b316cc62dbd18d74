from __future__ import annotations

import random
import socket
from typing import Any, Final

from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.messages.cluster import DescribeClusterRequest
from triolog.protocol.kafka.messages.groups import LeaveGroupRequest

from tests.kafka.differential import group_steps
from tests.kafka.differential.answers import Reading, differences
from tests.kafka.differential.script import Script
from tests.kafka.differential.sides import Late, Side
from tests.kafka.differential.symbols import APPENDED, BETWEEN, MEMBER, UNTOLD, Names, Symbol, Times
from tests.kafka.differential.world import Step, World
from tests.support.kafka_wire import KafkaWire

VERSIONS = {int(ApiKey.DESCRIBE_CLUSTER): (0, 2), int(ApiKey.LEAVE_GROUP): (0, 5)}
FIRST_WITH_MEMBERS = 3


def waiting(address: tuple[str, int]) -> Side:
    return Side(address, KafkaWire.connect(address, timeout_s=0.05), Reading(Names(), address))


def test_a_request_that_is_never_answered_is_a_difference_with_a_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        ours, kafka = waiting(address), waiting(address)
        script = Script(5, ours, kafka, World(random.Random(5), VERSIONS))
        [difference] = script._take(Step(body=DescribeClusterRequest(), version=1))
        assert "seed 5, request 0: version 1 of DescribeClusterRequest" in str(difference)
        assert "Kafka Late(" in str(difference)
        ours.close()
        kafka.close()
    assert list(differences(Late(), Late())), "two that do not answer are not alike"


def answer_to(body: LeaveGroupRequest, version: int, member: Any) -> dict[str, Any]:
    """Of a broker that knows this member and no other."""
    if version < FIRST_WITH_MEMBERS:
        return {"error_code": 0 if body.member_id == member else 25, "members": []}
    members = [{"member_id": each.member_id, "error_code": 0 if each.member_id == member else 25} for each in body.members]
    return {"error_code": 0, "members": members}


def test_a_member_is_in_its_group_until_it_has_left_itself() -> None:
    """One that is forgotten and there, having joined half, lets Kafka park the next join until the session has ended."""
    member = Symbol(MEMBER, 1)
    ended = set()
    for seed in range(400):
        world = World(random.Random(seed), VERSIONS)
        for group in world.groups.values():
            group.member = member
        step = group_steps.leave(world)
        named = step.body.members[0].member_id if step.version >= FIRST_WITH_MEMBERS else step.body.member_id
        step.learn(answer_to(step.body, step.version, member))
        has_left = world.groups[step.body.group_id].member == ""
        assert has_left == (named == member), f"seed {seed}: {step}"
        ended.add(has_left)
    assert ended == {True, False}


START: Final = 1_800_000_000_000


class Clock:
    """Shows what was set, and a millisecond more each time it is looked at."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def asked(*windows: tuple[int, int]) -> Times:
    """A broker that was asked from the first to the last of these milliseconds, request after request."""
    clock = Clock(START)
    times = Times(clock)
    for first, last in windows:
        clock.now = START + first - 1
        times.begin()
        clock.now = START + last - 1
        times.extend()
    return times


def test_times_of_one_request_are_equal_and_any_other_is_noticed() -> None:
    ours, kafka = asked((1, 9)), asked((5, 8))
    appended, untold = Symbol(APPENDED, 0), Symbol(UNTOLD, 0)
    assert [ours.tell(START + 3), ours.tell(START + 3)] == [kafka.tell(START + 6), kafka.tell(START + 7)] == [appended] * 2
    assert [ours.name(START + 3), kafka.name(START + 6), kafka.name(START + 7)] == [appended] * 3
    assert ours.name(START + 4) == untold, "not the one that was answered"
    assert ours.name(START + 3, is_of_append=False) == kafka.name(START + 5, is_of_append=False) == untold
    assert (kafka.value(appended, 0), kafka.value(appended, 1)) == (START + 6, START + 8)
    times = asked((1, 3), (4, 4), (8, 9))
    names = [times.name(START + ms) for ms in (3, 4, 6, 9, 10, 0)]
    assert names == [untold, Symbol(UNTOLD, 1), BETWEEN, Symbol(UNTOLD, 2), START + 10, START]


def test_a_request_has_no_millisecond_of_the_one_before() -> None:
    times = asked((1, 5))
    assert times.clock.now == START + 5  # type: ignore[attr-defined]
    times.clock.now = START + 2  # type: ignore[attr-defined]
    times.begin()
    times.extend()
    assert [times.name(START + ms) for ms in (5, 6)] == [Symbol(UNTOLD, 0), Symbol(UNTOLD, 1)]
