"""Groups: rows of the compatibility table."""

from __future__ import annotations

from tests.clients.driver import COOPERATIVE, SERVER
from tests.clients.features import Cell, feature, messages

PARTITIONS = 4


@feature("groups: members come, read, commit and go")
def members_come_read_commit_and_go(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic(partitions=PARTITIONS)
    with driver.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, messages("a", "b", partition=partition))
        first = driver.member(group, topic)
        assert first.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        assert len(first.received(2 * PARTITIONS)) == 2 * PARTITIONS
        first.commit()
        assert driver.committed(group, topic) == dict.fromkeys(range(PARTITIONS), 2)
        second = driver.member(group, topic)
        shares = [first.assigned(PARTITIONS // 2)[0], second.assigned(PARTITIONS // 2)[0]]
        assert shares[0] | shares[1] == set(range(PARTITIONS))
        assert driver.group(group) == ("Stable", 2)
        first.leave()
        assert second.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        for partition in range(PARTITIONS):
            producer.send(topic, messages("c", partition=partition))
        assert [each.value for each in second.received(PARTITIONS)] == [b"c"] * PARTITIONS
        second.leave()
    assert driver.group(group) == ("Empty", 0)


@feature("groups: static members")
def a_static_member_comes_back_without_a_rebalance(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic(partitions=PARTITIONS)
    first = driver.member(group, topic, instance="first")
    first.assigned(PARTITIONS)
    second = driver.member(group, topic, instance="second")
    held, _ = second.assigned(PARTITIONS // 2)
    before = first.assigned(PARTITIONS // 2)
    second.leave()
    second = driver.member(group, topic, instance="second")
    assert second.assigned(PARTITIONS // 2)[0] == held
    assert first.assigned(PARTITIONS // 2) == before
    second.leave()
    first.leave()


@feature("groups: cooperative rebalances")
def a_cooperative_member_keeps_what_does_not_move(cell: Cell) -> None:
    _two_members_keep_what_they_may(cell, COOPERATIVE)


@feature("groups: assignments by the server (KIP-848)")
def a_member_of_the_servers_groups_keeps_what_does_not_move(cell: Cell) -> None:
    _two_members_keep_what_they_may(cell, SERVER)


def _two_members_keep_what_they_may(cell: Cell, assignor: str) -> None:
    """Two partitions move to a second member, once; when it leaves they come back, and what was committed is kept."""
    driver, group, topic = cell.driver, cell.name("group"), cell.topic(partitions=PARTITIONS)
    with driver.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, messages("a", partition=partition))
    first = driver.member(group, topic, assignor=assignor)
    assert first.assigned(PARTITIONS) == (set(range(PARTITIONS)), 0)
    assert len(first.received(PARTITIONS)) == PARTITIONS
    first.commit()
    second = driver.member(group, topic, assignor=assignor)
    kept, revoked = first.assigned(PARTITIONS // 2)
    assert revoked == PARTITIONS // 2
    assert second.assigned(PARTITIONS // 2) == (set(range(PARTITIONS)) - kept, 0)
    second.leave()
    assert first.assigned(PARTITIONS) == (set(range(PARTITIONS)), PARTITIONS // 2)
    first.leave()
    assert driver.committed(group, topic) == dict.fromkeys(range(PARTITIONS), 1)


@feature("groups: offsets are reset")
def offsets_of_a_group_are_reset(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic()
    with driver.producer() as producer:
        producer.send(topic, messages("a", "b", "c"))
    driver.reset(group, topic, {0: 2})
    assert driver.committed(group, topic) == {0: 2}
    member = driver.member(group, topic)
    assert [each.value for each in member.received(1)] == [b"c"]
    member.leave()


@feature("groups: deleted")
def a_group_is_deleted(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic()
    driver.reset(group, topic, {0: 0})
    assert driver.committed(group, topic) == {0: 0}
    driver.delete_group(group)
    assert driver.committed(group, topic) == {}
