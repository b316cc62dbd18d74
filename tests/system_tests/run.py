"""`python -m tests.system_tests.run KAFKA_SOURCES VERSION [--kafka] TEST...` runs system tests of Apache Kafka on this machine.

`KAFKA_SOURCES` is a checkout of apache/kafka. Each TEST is as ducktape takes it, relative to it:
`tests/kafkatest/tests/core/get_offset_shell_test.py`. VERSION is that of the jars from Maven, whose clients and tools the
tests start: the release of the sources. With `--kafka` the server is that Apache Kafka instead of triolog.

The tests start servers and clients on nodes, kill processes by name, and write below /mnt. So everything runs in namespaces of
Linux of its own: without a network, with a /mnt and an /opt of its own, and each node with its own processes. This needs root,
unshare, nsenter, ip, a JDK, Maven and the packages ducktape and requests. It copies no code of Kafka.
"""

from __future__ import annotations

import os
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
    "kafka-run-class": "",
}
"""The class of each script of Kafka."""
JAVA: Final = "java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 $KAFKA_OPTS"
DUCKTAPE: Final = """
import ducktape.mark
from ducktape.command_line.main import main
matrix = ducktape.mark.matrix

def matrix_of_the_adapter(**values):
    for name, left_out in (("metadata_quorum", {"ZK"}), ("security_protocol", {"SSL", "SASL_PLAINTEXT", "SASL_SSL"})):
        if name in values:
            values[name] = [each for each in values[name] if each not in left_out]
    return matrix(**values)

ducktape.mark.matrix = matrix_of_the_adapter
main()
"""
"""ducktape without the variants with ZooKeeper, which triolog has not, and with TLS or logins, which the adapter has not."""


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
    tests = [each if each.startswith("-") else str(Path(sources, each)) for each in rest if each != "--kafka"]
    options = ["--cluster", "tests.system_tests.nodes.LocalCluster", "--results-root", str(results), "--max-parallel", "1"]
    path = os.pathsep.join([str(ROOT), str(Path(sources, "tests")), os.environ.get("PYTHONPATH", "")])
    return subprocess.call(
        [sys.executable, "-c", DUCKTAPE, *options, *tests], env={**os.environ, "PYTHONPATH": path}, cwd=sources
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
