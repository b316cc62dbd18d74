"""Streams groups (KIP-1071): a row of the compatibility table. Only Kafka Streams, which is Java's, has them: each
version of the client is asked with the Kafka Streams that came with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.clients import external_programs
from tests.clients.external_driver import ExternalDriver
from tests.clients.features import Cell, feature, messages
from tests.clients.streams_application import WordCount


@feature("Streams groups: words are counted (KIP-1071)")
def an_application_counts_words(cell: Cell) -> None:
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
