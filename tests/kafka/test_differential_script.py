"""A script of the comparison with Apache Kafka never waits without end, and knows who is in a group."""

from __future__ import annotations

import random
import socket
from typing import Any

from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.messages.admin.cluster import DescribeClusterRequest
from triolog.protocol.kafka.messages.groups import LeaveGroupRequest

from tests.kafka.differential import group_steps
from tests.kafka.differential.answers import Reading, differences
from tests.kafka.differential.names import MEMBER, Names, Symbol
from tests.kafka.differential.script import Script
from tests.kafka.differential.sides import Late, Side
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


def test_two_brokers_that_do_not_answer_are_not_alike() -> None:
    assert list(differences(Late(), Late()))


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
