"""A real client in a process of its own: produces a record, reads it back, prints its value or why not. Clients leave threads
and descriptors behind when they are refused; a process takes them along.

`python -m tests.support.kafka_client_process CLIENT ADDRESS KEYS PATIENCE_MS` with keys as librdkafka
names them, in JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
ROOT: Final = Path(__file__).resolve().parents[2]

Keys = dict[str, Any]
"""As librdkafka names them."""


def librdkafka(address: str, keys: Keys, patience_ms: int) -> bytes | None:
    import confluent_kafka

    refused: list[Any] = []

    def told(error: Any) -> None:
        """It would go on for ever with the same password."""
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            refused.append(error)

    common = {"bootstrap.servers": address, **keys}
    producer = confluent_kafka.Producer({**common, "message.timeout.ms": patience_ms, "error_cb": told})
    delivered: list[Any] = []
    producer.produce("topic", b"value", on_delivery=lambda error, _: delivered.append(error))
    while not delivered and not refused:
        producer.poll(POLL_S)
    if delivered != [None]:
        raise PermissionError(f"the record was not delivered: {refused or delivered}")
    consumer = confluent_kafka.Consumer({**common, "group.id": "g"})
    try:
        consumer.assign([confluent_kafka.TopicPartition("topic", 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


def kafka_python(address: str, keys: Keys, patience_ms: int) -> bytes | None:
    import kafka

    options = {
        "bootstrap_servers": address,
        "security_protocol": keys.get("security.protocol", "PLAINTEXT").upper(),
        "ssl_cafile": keys.get("ssl.ca.location"),
        "ssl_certfile": keys.get("ssl.certificate.location"),
        "ssl_keyfile": keys.get("ssl.key.location"),
        "sasl_mechanism": keys.get("sasl.mechanism"),
        "sasl_plain_username": keys.get("sasl.username"),
        "sasl_plain_password": keys.get("sasl.password"),
    }
    producer = kafka.KafkaProducer(**options, bootstrap_timeout_ms=patience_ms, max_block_ms=patience_ms)
    try:
        producer.send("topic", b"value").get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    consumer = kafka.KafkaConsumer(**options, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=30_000)
    try:
        consumer.assign([kafka.TopicPartition("topic", 0)])
        value: bytes | None = next(consumer).value
        return value
    finally:
        consumer.close()


def aio_kafka(address: str, keys: Keys, _patience_ms: int) -> bytes | None:
    import aiokafka

    context = None
    if "ssl.ca.location" in keys:
        context = ssl.create_default_context(cafile=keys["ssl.ca.location"])
        if "ssl.certificate.location" in keys:
            context.load_cert_chain(keys["ssl.certificate.location"])
    options = {
        "bootstrap_servers": address,
        "security_protocol": keys.get("security.protocol", "PLAINTEXT").upper(),
        "ssl_context": context,
        "sasl_mechanism": keys.get("sasl.mechanism", "PLAIN"),
        "sasl_plain_username": keys.get("sasl.username"),
        "sasl_plain_password": keys.get("sasl.password"),
    }

    async def exchange() -> bytes | None:
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("topic", b"value")
        consumer = aiokafka.AIOKafkaConsumer(**options, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition("topic", 0)])
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value
            return value
        finally:
            await consumer.stop()

    return asyncio.run(exchange())


CLIENTS: Final = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aio_kafka}


def exchanged(client: str, address: str, keys: Keys, patience_ms: int = 30_000) -> str:
    """What the client read, from a process of its own; all that it said, when it did not."""
    command = [sys.executable, "-m", __name__, client, address, json.dumps(keys), str(patience_ms)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * TIMEOUT_S)
    return f"{done.stdout}\n{done.stderr}" if ":" in done.stdout else done.stdout


def main() -> None:
    client, address, keys, patience_ms = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    try:
        said = repr(CLIENTS[client](address, json.loads(keys), int(patience_ms)))
    except BaseException as exc:
        said = f"{type(exc).__name__}: {exc}"
    sys.stdout.write(said)
    sys.stdout.flush()
    os._exit(0)  # without waiting for what a refused client still tries


if __name__ == "__main__":
    main()
