"""Share groups (KIP-932) and Streams groups (KIP-1071): rows of the compatibility table."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

from tests.clients import external_programs
from tests.clients.driver import Given, Sharer, SharingDriver
from tests.clients.external_driver import ExternalDriver
from tests.clients.features import Cell, feature, messages
from tests.clients.streams_application import WordCount

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


@feature("Streams groups: words are counted (KIP-1071)")
def an_application_counts_words(cell: Cell) -> None:
    """Only Kafka Streams has such groups: each version of Java's client is asked with the one that came with it."""
    driver = cell.driver
    assert isinstance(driver, ExternalDriver)
    program = external_programs.streams(driver.program.ask("version"))
    words, counts = cell.topic("words", 2), cell.topic("counts")
    with cell.driver.producer() as producer:
        producer.send(words, messages("a b a", "c") + messages("b a", partition=1))
    with tempfile.TemporaryDirectory() as folder:
        started = WordCount.start(
            program, driver.bootstrap, Path(folder), name=cell.name("application"), topics=(words, counts)
        )
        with started:
            told: dict[bytes | None, bytes | None] = {}
            start = 0
            while told != {b"a": b"3", b"b": b"2", b"c": b"1"}:
                for record in driver.read(counts, 1, starts={0: start}):
                    told[record.key] = record.value
                    start = record.offset + 1
            started.stop()
