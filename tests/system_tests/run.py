"""`python -m tests.system_tests.run KAFKA_SOURCES VERSION [--kafka] [NAME=VALUE...] TEST...` runs system tests of Apache Kafka.

`KAFKA_SOURCES` is a checkout of apache/kafka. Each TEST is as ducktape takes it, relative to it:
`tests/kafkatest/tests/core/get_offset_shell_test.py`. VERSION is that of the jars from Maven, whose clients and tools the
tests start: the release of the sources. With `--kafka` the server is that Apache Kafka instead of triolog. NAME=VALUE, such as
`group_protocol=classic`, leaves out the other variants of each test that has one of this value.

The tests start servers and clients on nodes, kill processes by name, and write below /mnt. So everything runs in namespaces of
Linux of its own: without a network, with a /mnt and an /opt of its own, and each node with its own processes. This needs root,
unshare, nsenter, ip, a JDK, Maven and the packages ducktape and requests. It copies no code of Kafka.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from triolog.tools.bench.kafka.jars import kafka_jars

from tests.system_tests.nodes import NODES, address_of, name_of

ROOT: Final = Path(__file__).resolve().parents[2]
OPT: Final = Path("/opt/kafka-dev")
INSIDE: Final = "SYSTEM_TESTS_INSIDE"
CLASSES: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-run-class": "",
}
"""The class of each script of Kafka."""
JAVA: Final = "java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 $KAFKA_OPTS"
DUCKTAPE: Final = """
import os

import ducktape.mark
from ducktape.command_line.main import main
from kafkatest.services.kafka import KafkaService
matrix = ducktape.mark.matrix

only = dict(each.split("=") for each in os.environ["SYSTEM_TESTS_ONLY"].split())
secure = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
left_out = {"metadata_quorum": ["ZK"], "security_protocol": secure, "use_new_coordinator": [False]}

def matrix_of_the_adapter(**values):
    for name, kept in values.items():
        kept = [each for each in kept if each not in left_out.get(name, ())]
        values[name] = [each for each in kept if str(each) == only.get(name, str(each))] or kept
    return matrix(**values)

ducktape.mark.matrix = matrix_of_the_adapter
start, create_topic = KafkaService.__init__, KafkaService.create_topic

one = [["transaction.state.log.replication.factor", "1"], ["transaction.state.log.min.isr", "1"]]

def start_one(self, context, num_nodes, *arguments, server_prop_overrides=None, **keywords):
    start(self, context, 1, *arguments, server_prop_overrides=[*(server_prop_overrides or []), *one], **keywords)

def create_topic_of_one(self, topic, *arguments, **keywords):
    configs = {name: value for name, value in topic.get("configs", {}).items() if name != "min.insync.replicas"}
    create_topic(self, {**topic, "replication-factor": 1, "configs": configs}, *arguments, **keywords)

KafkaService.__init__, KafkaService.create_topic = start_one, create_topic_of_one
main()
"""
"""ducktape with one broker in each cluster, triolog or Kafka, and a replica of each partition. Without the variants with
ZooKeeper or the old coordinator, which triolog has not, and with TLS or logins, which the adapter has not."""


def main(arguments: list[str]) -> int:
    if os.environ.get(INSIDE) is None:
        environment = {**os.environ, INSIDE: kafka_jars(arguments[1])}
        command = ["unshare", "--net", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
        return subprocess.call(
            [*command, sys.executable, "-m", "tests.system_tests.run", *arguments], env=environment, cwd=ROOT
        )
    sources, _, *rest = arguments
    is_kafka = "--kafka" in rest
    begun = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    results = ROOT / "build" / "system_tests" / f"{'kafka' if is_kafka else 'triolog'}-{begun}"
    _prepare(is_kafka=is_kafka)
    only = [each for each in rest if re.fullmatch(r"\w+=\w+", each)]
    tests = [each if each.startswith("-") else str(Path(sources, each)) for each in rest if each not in ("--kafka", *only)]
    options = ["--cluster", "tests.system_tests.nodes.LocalCluster", "--results-root", str(results), "--max-parallel", "1"]
    path = os.pathsep.join([str(ROOT), str(Path(sources, "tests")), os.environ.get("PYTHONPATH", "")])
    return subprocess.call(
        [sys.executable, "-c", DUCKTAPE, *options, *tests],
        env={**os.environ, "PYTHONPATH": path, "SYSTEM_TESTS_ONLY": " ".join(only)},
        cwd=sources,
    )


def _prepare(*, is_kafka: bool) -> None:
    """Bring up the loopback, name the nodes, and write the scripts of an installation of Kafka."""
    hosts = f"127.0.0.1 localhost {socket.gethostname()}\n" + "".join(
        f"{address_of(number)} {name_of(number)}\n" for number in range(NODES)
    )
    for command in (
        ("ip", "link", "set", "lo", "up"),
        ("mount", "--make-rprivate", "/"),
        ("mount", "-t", "tmpfs", "tmpfs", "/opt"),
    ):
        subprocess.run(command, check=True)
    OPT.joinpath("bin").mkdir(parents=True)
    OPT.joinpath("hosts").write_text(hosts)
    subprocess.run(("mount", "--bind", OPT / "hosts", "/etc/hosts"), check=True)
    jars = os.environ[INSIDE]
    for name, kind in CLASSES.items():
        _script(f"{name}.sh", f'exec {JAVA} -cp "$CLASSPATH:{jars}" {kind} "$@"')
    storage, server = "true", f'cd {ROOT} && exec {sys.executable} -m tests.system_tests.start_server "$1" kafka.Kafka'
    if is_kafka:
        storage = f'exec {JAVA} -cp "{jars}" kafka.tools.StorageTool "$@"'
        server = f'exec {JAVA} -Dorg.slf4j.simpleLogger.defaultLogLevel=info -cp "{jars}" kafka.Kafka "$@"'
    _script("kafka-storage.sh", storage)
    _script("kafka-server-start.sh", server)
    _script("sudo", 'exec "$@"')
    os.environ["PATH"] = f"{OPT / 'bin'}:{os.environ['PATH']}"


def _script(name: str, text: str) -> None:
    path = OPT / "bin" / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
