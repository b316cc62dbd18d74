"""Every right that Kafka's protocol asks for, asked of Apache Kafka with its StandardAuthorizer: the file with which the quick
suite compares triolog (`tests/server/listeners/kafka/access/test_guard.py`) has what it answers. `TRIOLOG_WRITE_TABLE=1`
writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from triolog.server.config.broker_config import Address

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_rights.askers import askers
from tests.support.kafka_rights.world import ADMIN, PASSWORD, World, answered, comparable, question, record, recorded, users

AT_ONCE: Final = ("consumer", "share", "streams")
"""Kinds of groups that assign without delay."""
SETTINGS: Final = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",  # the latter is the broker at its controller
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    **{f"group.{kind}.assignment.interval.ms": "0" for kind in AT_ONCE},
    **{f"group.{kind}.assignor.offload.enable": "false" for kind in AT_ONCE},
}


def login_module() -> str:
    """Kafka's way to name its users."""
    told = " ".join(f'user_{user}="{password}"' for user, password in users().items())
    name = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{name} required username="{ADMIN}" password="{PASSWORD}" {told};'


def test_kafka_answers_what_was_recorded(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "listener.name.plaintext.plain.sasl.jaas.config": login_module()}
    with KafkaBroker(tmp_path / "kafka", kafka_class_path, kafka, settings=settings) as theirs:
        theirs.format()
        theirs.start()
        world = World.made(Address.parse(theirs.address))
        answers = answered(world, askers())
        theirs.stop()
    if os.environ.get("TRIOLOG_WRITE_TABLE"):
        record(comparable(answers))
    assert comparable(answers) == recorded()
    for asker in askers():
        told = [answers[question(asker, of)] for of in asker.asks_about]
        if asker.hidden is not None:
            assert (asker.hidden.shows in told[0].text) is bool(asker.more), asker.label
        elif asker.missing is None:
            assert not told[0].refusals, asker.label
