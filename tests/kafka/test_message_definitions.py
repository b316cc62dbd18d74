"""What is served, declared and written on the compatibility page, against the definitions in the jars of Kafka's clients.

`TRIOLOG_WRITE_TABLE=1` writes the page's table of all APIs, with the reasons that it has.
"""

from __future__ import annotations

import os
from itertools import product
from random import Random
from typing import Final

import pytest
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.schema import codec
from triolog.server.fake.kafka.kafka_versions import maxima_of

from tests.support.api_table import NEWEST, PAGE, REFERENCE, AllApis, reasons_in, replaced
from tests.support.counts import seeds
from tests.support.kafka_jars import KafkaUnavailableError, clients_jar, unavailable
from tests.support.kafka_oracles import KafkaJar, declared_here
from tests.support.kafka_values import MESSAGES, anything, random_value

NOT_READ_BY_KAFKA: Final = frozenset({("ListOffsets", 0)})
"""Kafka 4 has let go of it; clients of today still send it."""


def definitions(version: str) -> KafkaJar:
    try:
        return KafkaJar(clients_jar(version))
    except KafkaUnavailableError as exc:
        unavailable(str(exc))


@pytest.fixture(scope="module")
def newest() -> KafkaJar:
    return definitions(NEWEST)


def test_every_message_is_declared_as_in_kafkas_own_file(newest: KafkaJar) -> None:
    unknown = {(message.api.name, message.version) for message in MESSAGES if not newest.knows(message)}
    assert unknown == NOT_READ_BY_KAFKA
    for message in filter(newest.knows, MESSAGES):
        assert declared_here(message.cls, message.version) == newest.declared(message), message


def test_every_message_is_written_and_read_by_kafkas_own_file(newest: KafkaJar) -> None:
    for message, seed in product(filter(newest.knows, MESSAGES), seeds(5)):
        value = random_value(message.cls, message.version, Random(seed), anything)
        theirs = newest.encode(message, value)
        assert b"".join(codec.write(value, message.version, flexible=message.flexible)) == theirs, message
        read = codec.read(message.cls, message.version, memoryview(theirs), flexible=message.flexible)
        assert read == (value, len(theirs)), message


def test_the_page_has_every_api_in_the_versions_of_both_releases(newest: KafkaJar) -> None:
    """And a reason where a version is served that Kafka has not, or the other way round."""
    page = PAGE.read_text(encoding="utf-8")
    table = AllApis(of_brokers(definitions(REFERENCE)), of_brokers(newest), reasons_in(page))
    if os.environ.get("TRIOLOG_WRITE_TABLE"):
        PAGE.write_text(page := replaced(page, table), encoding="utf-8")
    assert page == replaced(page, table)
    assert table.without_reason() == []


def of_brokers(jar: KafkaJar) -> dict[int, tuple[str, range]]:
    return {key: (name, jar.versions(name)) for key, name in jar.of_brokers().items()}


@pytest.mark.parametrize(("version", "release"), [(REFERENCE, "4.3"), (NEWEST, "4.4")])
def test_a_release_is_emulated_with_the_versions_that_it_has(version: str, release: str) -> None:
    jar = definitions(version)
    highest = {key: jar.versions(name)[-1] for key, name in jar.of_brokers().items() if key in APIS}
    assert {key: maxima_of(release)[key] for key in highest} == highest
