"""Apache Kafka's command-line tools, called for one broker, and what they print as values."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

import attrs
from confluent_kafka import Producer
from triolog.server.embedded import BlockingBroker

from tests.support.kafka_jars import KafkaCalls, Outcome

TOOLS: Final = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
}
Row = dict[str, str]


class Tools:
    """Calls `kafka-NAME.sh` for one broker."""

    def __init__(self, calls: KafkaCalls, broker: BlockingBroker) -> None:
        self.calls, self.address = calls, str(broker.kafka)

    def call(self, name: str, *arguments: object, option: str = "--bootstrap-server") -> Outcome:
        return self.calls.call("tool", TOOLS[name], option, self.address, *arguments)

    def __call__(self, name: str, *arguments: object) -> str:
        return self.call(name, *arguments).ok()

    def typed(self, text: str, name: str, *arguments: object) -> str:
        """The same with a standard input."""
        encoded = base64.b64encode(text.encode()).decode()
        return self.calls.call("typed", encoded, TOOLS[name], "--bootstrap-server", self.address, *arguments).ok()

    def plain(self, name: str, *arguments: object) -> str:
        """One that is told elsewhere which broker it talks to."""
        return self.calls.call("tool", TOOLS[name], *arguments).ok()

    def cluster(self, command: str) -> str:
        return self.plain("cluster", command, "--bootstrap-server", self.address)


@attrs.define(eq=False)
class Opened:
    """Where a producer is while it lives: its threads end when nothing refers to it."""

    client: Producer


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def table(text: str, first: str = "GROUP") -> list[Row]:
    """The rows below the line that begins with the heading `first`, by headings in lower case.

    Lines that have not a word for each heading are none of it. `COORDINATOR (ID)` is one heading and `host:port (1)` one word.
    """
    words = [re.sub(r" +\(", "(", line).split() for line in lines(text)]
    start = [row[0] for row in words].index(first)
    headings = [word.lower() for word in words[start]]
    return [dict(zip(headings, row, strict=True)) for row in words[start + 1 :] if len(row) == len(headings)]


def json_values(text: str) -> list[Any]:
    """Values of JSON with nothing between them, as Kafka's message formatters print."""
    decoder, values, position = json.JSONDecoder(), [], 0
    while position < len(text):
        value, end = decoder.raw_decode(text, position)
        values.append(value)
        position = end + (len(text[end:]) - len(text[end:].lstrip()))
    return values


def decoded(output: str) -> list[tuple[dict[str, Any], Any]]:
    """(key, value) of each record that DumpLogSegments shows with one of its decoders; None where there is no value."""
    found = re.findall(r"key: (\{.*?\}) payload: (.*)$", output, flags=re.MULTILINE)
    return [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in found]
