"""The rows of the conformance suite: what a client has to be able to do, each a function that is told its cell of the table.

A scenario says what it expects in plain asserts and reaches the broker through the client alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import attrs

from tests.clients.driver import Driver, Message

START_MS: Final = 1_750_000_000_000
KEPT: Final = {"retention.ms": "-1"}
"""Messages of the scenarios are older than the retention of a week."""


class Broker(StrEnum):
    """Which of the suite's brokers a scenario runs against. All but one are shared by its tests."""

    PLAIN = "plain"
    OWN = "own"
    """One that nobody else uses: the scenario restarts it."""
    TLS = "tls"
    MUTUAL_TLS = "mutual-tls"
    SASL = "sasl"


@attrs.define(eq=False)
class Cell:
    """A client at a broker, for one scenario. Owner: the test."""

    driver: Driver
    prefix: str
    """Nobody else's at this broker."""
    restart: Callable[[], None]
    """Only with a broker of its own."""

    def name(self, of: str) -> str:
        """A topic, group or transactional id that nobody else uses."""
        return f"{self.prefix}-{of}"

    def topic(self, of: str = "t", partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        self.driver.create_topic(self.name(of), partitions, {**KEPT, **(configs or {})})
        return self.name(of)


Scenario = Callable[[Cell], None]


@attrs.frozen
class Feature:
    name: str
    scenario: Scenario
    broker: Broker
    mechanism: str | None
    """How the client logs in."""

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")


FEATURES: Final[dict[str, Feature]] = {}
"""By name, in the order of the table."""


def feature(name: str, *, broker: Broker = Broker.PLAIN, mechanism: str | None = None) -> Callable[[Scenario], Scenario]:
    """A row, which may stand above a function more than once."""

    def register(function: Scenario) -> Scenario:
        assert name not in FEATURES, name
        FEATURES[name] = Feature(name, function, broker, mechanism)
        return function

    return register


def values(count: int, prefix: str = "value") -> list[Message]:
    return [Message(value=f"{prefix}-{number}".encode(), timestamp_ms=START_MS + number) for number in range(count)]


def messages(*texts: str, partition: int = 0) -> list[Message]:
    return [Message(value=text.encode(), partition=partition) for text in texts]
