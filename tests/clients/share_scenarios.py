"""Share groups (KIP-932): rows of the compatibility table."""

from __future__ import annotations

from collections.abc import Collection

from tests.clients.driver import Given, Sharer, SharingDriver
from tests.clients.features import Cell, feature, messages

VALUES = ("a", "b", "c", "d")


def _sharing(cell: Cell, **configs: str) -> SharingDriver:
    driver = cell.driver
    assert isinstance(driver, SharingDriver)
    driver.configure_group(cell.name("group"), {"share.auto.offset.reset": "earliest", **configs})
    return driver


def _filled(cell: Cell) -> str:
    topic = cell.topic()
    with cell.driver.producer() as producer:
        producer.send(topic, messages(*VALUES))
    return topic


def _given(sharer: Sharer, wanted: Collection[int]) -> dict[int, Given]:
    """Polls until it has all of these offsets, which it was given once; says nothing of them."""
    given: list[Given] = []
    while len(given) < len(wanted):
        given += sharer.poll()
    assert sorted(each.offset for each in given) == sorted(wanted)
    return {each.offset: each for each in given}


@feature("share groups: accepted, given back, rejected")
def what_is_given_back_comes_again(cell: Cell) -> None:
    driver, group, topic = _sharing(cell), cell.name("group"), _filled(cell)
    sharer = driver.sharer(group, topic)
    given = _given(sharer, range(4))
    assert [(given[offset].value, given[offset].deliveries) for offset in given] == [(each.encode(), 1) for each in VALUES]
    assert sharer.acknowledge([(0, 0, "accept"), (0, 1, "release"), (0, 2, "reject"), (0, 3, "release")]) == []
    again = _given(sharer, [1, 3])
    assert [each.deliveries for each in again.values()] == [2, 2]
    assert sharer.acknowledge([(0, 1, "accept"), (0, 3, "accept")]) == []
    with cell.driver.producer() as producer:
        producer.send(topic, messages("e"))
    assert _given(sharer, [4])[4].deliveries == 1
    assert sharer.acknowledge([(0, 4, "accept")]) == []
    sharer.leave()


@feature("share groups: what a member had that leaves, others get")
def what_a_member_had_that_leaves_others_get(cell: Cell) -> None:
    driver, group, topic = _sharing(cell), cell.name("group"), _filled(cell)
    first = driver.sharer(group, topic)
    given = _given(first, range(4))
    assert first.acknowledge([(0, 0, "accept"), (0, 1, "release"), (0, 2, "release"), (0, 3, "release")]) == []
    assert given[0].deliveries == 1
    first.leave()
    second = driver.sharer(group, topic)
    again = _given(second, [1, 2, 3])
    assert all(each.deliveries >= 2 for each in again.values())
    assert second.acknowledge([(0, offset, "accept") for offset in again]) == []
    second.leave()


@feature("share groups: accepted by the next poll")
def what_is_said_by_itself(cell: Cell) -> None:
    driver, group, topic = _sharing(cell), cell.name("group"), _filled(cell)
    sharer = driver.sharer(group, topic, explicit=False)
    _given(sharer, range(4))
    with cell.driver.producer() as producer:
        producer.send(topic, messages("e"))
    assert _given(sharer, [4])[4].deliveries == 1
    assert sharer.acknowledge() == []
    sharer.leave()
    with cell.driver.producer() as producer:
        producer.send(topic, messages("f"))
    other = driver.sharer(group, topic, explicit=False)
    assert _given(other, [5])[5].deliveries == 1
    assert other.acknowledge() == []
    other.leave()
