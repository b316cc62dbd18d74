"""The columns of the conformance suite: client libraries, and what each of them cannot do by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import aiokafka
import attrs
import confluent_kafka

from tests.clients import external_programs
from tests.clients.aiokafka_driver import AiokafkaDriver
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import Access, Driver
from tests.clients.external_driver import ExternalDriver, ExternalProgram
from tests.clients.external_programs import Command
from tests.clients.kafka_python_driver import KafkaPythonDriver, kafka

STATIC: Final = "groups: static members"
COOPERATIVE: Final = "groups: cooperative rebalances"
BY_SERVER: Final = "groups: assignments by the server (KIP-848)"
ROLLING: Final = "groups: a rolling change of the protocol (KIP-848)"
BY_TASKS: Final = "Streams groups: words are counted (KIP-1071)"
ONLY_JAVA: Final = {BY_TASKS: "only Java has Kafka Streams"}
GROUPS_DELETED: Final = "groups: deleted"
DriverOf = Callable[[str, Access], Driver]
SHARING: Final = (
    "share groups: accepted, given back, rejected",
    "share groups: what a member had that leaves, others get",
    "share groups: accepted by the next poll",
    "share groups: rejected, into the dead-letter queue (KIP-1191)",
)


@attrs.frozen(kw_only=True)
class Running:
    version: str
    driver: DriverOf


@attrs.frozen(kw_only=True)
class Client:
    """A column. `running` raises ProgramUnavailableError where its language is not here."""

    name: str
    running: Callable[[], Any]
    cannot: Mapping[str, str] = attrs.field(factory=dict)
    """Feature -> why: what the library does not have, whatever the broker."""
    is_program: bool = False
    """Of another language: to start it and to ask it takes its time."""


def _of_python(driver: DriverOf, version: Callable[[], str]) -> Callable[[], Any]:
    @contextmanager
    def running() -> Iterator[Running]:
        yield Running(version=version(), driver=driver)

    return running


def program(name: str, command: Callable[[], Command]) -> Callable[[], Any]:
    @contextmanager
    def running() -> Iterator[Running]:
        with ExternalProgram.running(name, command()) as program:
            yield Running(version=program.ask("version"), driver=partial(ExternalDriver, program))

    return running


CLIENTS: Final = {
    client.name: client
    for client in (
        Client(
            name="confluent-kafka",
            running=_of_python(
                ConfluentDriver, lambda: f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
            ),
            cannot=ONLY_JAVA,
        ),
        Client(
            name="aiokafka",
            running=_of_python(AiokafkaDriver, lambda: str(aiokafka.__version__)),
            cannot={
                COOPERATIVE: "aiokafka has no cooperative assignor",
                **dict.fromkeys((BY_SERVER, ROLLING), "aiokafka has no KIP-848"),
                GROUPS_DELETED: "aiokafka's admin client has no call for it",
                **dict.fromkeys(SHARING, "aiokafka has no share groups"),
                **ONLY_JAVA,
            },
        ),
        Client(
            name="kafka-python",
            running=_of_python(KafkaPythonDriver, lambda: str(kafka.__version__)),
            cannot={
                **dict.fromkeys((BY_SERVER, ROLLING), "kafka-python has no KIP-848"),
                **dict.fromkeys(SHARING, "kafka-python has no share groups"),
                **ONLY_JAVA,
            },
        ),
        Client(
            name="kafkajs",
            is_program=True,
            running=program("kafkajs", external_programs.kafkajs),
            cannot={
                STATIC: "kafkajs has no static members",
                COOPERATIVE: "kafkajs has no cooperative assignor",
                **dict.fromkeys((BY_SERVER, ROLLING), "kafkajs has no KIP-848"),
                **dict.fromkeys(SHARING, "kafkajs has no share groups"),
                **ONLY_JAVA,
            },
        ),
        Client(
            name="franz-go",
            is_program=True,
            running=program("franz-go", partial(external_programs.go, "franz-go")),
            cannot=ONLY_JAVA,
        ),
        Client(name="java", is_program=True, running=program("java", external_programs.java)),
        Client(name="java-4.4", is_program=True, running=program("java-4.4", partial(external_programs.java, "4.4.0"))),
        Client(
            name="sarama",
            is_program=True,
            running=program("sarama", partial(external_programs.go, "sarama")),
            cannot={
                **dict.fromkeys((BY_SERVER, ROLLING), "sarama has no KIP-848"),
                **dict.fromkeys(SHARING, "sarama has no share groups"),
                **ONLY_JAVA,
            },
        ),
    )
}
"""In the order of the table."""
