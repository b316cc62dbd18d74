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
from tests.clients.confluent_aio_driver import ConfluentAioDriver
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import Access, Driver
from tests.clients.external_driver import ExternalDriver, ExternalProgram
from tests.clients.external_programs import Command
from tests.clients.kafka_python_driver import KafkaPythonDriver, kafka
from tests.support.counts import COMMIT, LONG, MERGE

STATIC: Final = "groups: static members"
COOPERATIVE: Final = "groups: cooperative rebalances"
STATIC_BY_SERVER: Final = "groups: static members (KIP-848)"
MEMBERS_BY_SERVER: Final = "groups: members come, read, commit and go (KIP-848)"
ROLLING: Final = "groups: a rolling change of the protocol (KIP-848)"
BY_SERVER: Final = (
    MEMBERS_BY_SERVER,
    STATIC_BY_SERVER,
    "groups: assignments by the server (KIP-848)",
    ROLLING,
    "groups: offsets are reset (KIP-848)",
)
BY_TASKS: Final = "Streams groups: words are counted (KIP-1071)"
GROUPS_DELETED: Final = "groups: deleted"
SHARING: Final = (
    "share groups: accepted, given back, rejected",
    "share groups: what a member had that leaves, others get",
    "share groups: accepted by the next poll",
    "share groups: rejected, into the dead-letter queue (KIP-1191)",
)
TRANSACTIONS: Final = (
    "transactions: committed and aborted",
    "transactions: fenced by a successor",
    "transactions: consume, transform, produce",
)
CODECS: Final = "produce with every codec"
BYTES: Final = "keys, headers, nulls, timestamps"
IDEMPOTENCE: Final = "idempotence across a broker restart"
ADMINISTRATION: Final = "administration of topics"
SEEK_BY_TIME: Final = "seek by time"
WATERMARKS: Final = "watermarks"
OAUTH: Final = "SASL OAUTHBEARER"

NO_STREAMS: Final = {BY_TASKS: "only Java has Kafka Streams"}
NO_STATIC_MEMBERS: Final = {STATIC: "no static members"}
NO_COOPERATION: Final = {COOPERATIVE: "no cooperative assignor"}
NO_KIP_848: Final = dict.fromkeys(BY_SERVER, "no `group.protocol=consumer`")
CANNOT_DESCRIBE: Final = {MEMBERS_BY_SERVER: "no call that describes such a group"}
NO_SHARE_GROUPS: Final = dict.fromkeys(SHARING, "no share groups")
"""What several libraries lack."""

PYTHON_AND_RUST: Final = "Python and Rust"
OTHERS: Final = "Go, JavaScript and Java"

DriverOf = Callable[[str, Access], Driver]


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
    tier: str = MERGE
    """The first tier that runs it."""
    family: str = OTHERS
    """The heading of its table."""


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


def _confluent_version() -> str:
    return f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"


CLIENTS: Final = {
    client.name: client
    for client in (
        Client(
            name="confluent-kafka",
            tier=COMMIT,
            family=PYTHON_AND_RUST,
            running=_of_python(ConfluentDriver, _confluent_version),
            cannot=NO_STREAMS,
        ),
        Client(
            name="confluent-kafka.aio",
            family=PYTHON_AND_RUST,
            running=_of_python(ConfluentAioDriver, _confluent_version),
            cannot={
                **dict.fromkeys((BYTES, SEEK_BY_TIME), "AIOProducer has no headers and no timestamps"),
                **dict.fromkeys((GROUPS_DELETED, ADMINISTRATION), "no admin client: programs use the blocking one"),
                **NO_SHARE_GROUPS,
                **NO_STREAMS,
            },
        ),
        Client(
            name="aiokafka",
            family=PYTHON_AND_RUST,
            running=_of_python(AiokafkaDriver, lambda: str(aiokafka.__version__)),
            cannot={
                GROUPS_DELETED: "aiokafka's admin client has no call for it",
                **NO_COOPERATION,
                **NO_KIP_848,
                **NO_SHARE_GROUPS,
                **NO_STREAMS,
            },
        ),
        Client(
            name="kafka-python",
            family=PYTHON_AND_RUST,
            running=_of_python(KafkaPythonDriver, lambda: str(kafka.__version__)),
            cannot={**NO_KIP_848, **NO_SHARE_GROUPS, **NO_STREAMS},
        ),
        Client(
            name="rust-rdkafka",
            tier=LONG,
            family=PYTHON_AND_RUST,
            running=program("rust-rdkafka", external_programs.rust),
            cannot={
                OAUTH: "rust-rdkafka's admin client does not request a token",
                **CANNOT_DESCRIBE,
                **NO_SHARE_GROUPS,
                **NO_STREAMS,
            },
        ),
        Client(
            name="franz-go",
            running=program("franz-go", partial(external_programs.go, "franz-go")),
            cannot={STATIC_BY_SERVER: "franz-go leaves without its instance id, which Kafka refuses, too", **NO_STREAMS},
        ),
        Client(
            name="sarama",
            running=program("sarama", partial(external_programs.go, "sarama")),
            cannot={**NO_KIP_848, **NO_SHARE_GROUPS, **NO_STREAMS},
        ),
        Client(
            name="kafka-go",
            running=program("kafka-go", partial(external_programs.go, "kafka-go")),
            cannot={
                BYTES: "kafka-go's reader returns null for empty bytes",
                **dict.fromkeys((WATERMARKS, ADMINISTRATION), "kafka-go cannot delete records"),
                IDEMPOTENCE: "kafka-go's writer is not idempotent",
                **dict.fromkeys(TRANSACTIONS, "kafka-go's writer has no transactions"),
                OAUTH: "kafka-go has no OAUTHBEARER",
                **NO_STATIC_MEMBERS,
                **NO_COOPERATION,
                **NO_KIP_848,
                **NO_SHARE_GROUPS,
                **NO_STREAMS,
            },
        ),
        Client(
            name="kafkajs",
            running=program("kafkajs", partial(external_programs.node, "kafkajs")),
            cannot={**NO_STATIC_MEMBERS, **NO_COOPERATION, **NO_KIP_848, **NO_SHARE_GROUPS, **NO_STREAMS},
        ),
        Client(
            name="platformatic-kafka",
            running=program("platformatic-kafka", partial(external_programs.node, "platformatic")),
            cannot={
                CODECS: "platformatic-kafka needs Node 22.15 for zstd",
                **dict.fromkeys((STATIC, STATIC_BY_SERVER), "platformatic-kafka's static members leave when they close"),
                ROLLING: "platformatic-kafka's classic members send a malformed subscription: Kafka cannot upgrade it, either",
                **CANNOT_DESCRIBE,
                **NO_COOPERATION,
                **NO_SHARE_GROUPS,
                **NO_STREAMS,
            },
        ),
        Client(name="java", running=program("java", external_programs.java)),
        Client(name="java-4.4", running=program("java-4.4", partial(external_programs.java, "4.4.0"))),
    )
}
"""In the order of the tables."""
