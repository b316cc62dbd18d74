"""The things that pages take for granted, and the blocks that no test runs. `tests/test_pages.py` follows the pages.

A preparation is text in the format of `followed_page`. It comes before its block, or around the mark `BLOCK`.
"""

from __future__ import annotations

from typing import Final

BLOCK: Final = "@@@"


def typed(*lines: str) -> str:
    return "\n".join(("```console", *lines, "```\n"))


def created(topic: str) -> str:
    return typed(f"$ triolog topics create {topic}", f"created {topic} with 1 partition")


SERVED: Final = typed("$ triolog serve --data-dir data --kafka 127.0.0.1:9092")
STOPPED: Final = typed("^C")

MISSING: Final = """
```python title="missing.py"
from pathlib import Path

import triolog.blocking

with triolog.blocking.open("data") as broker:
    broker.create_topic("orders", config={"segment.bytes": "4000", "retention.ms": "-1"})
    for number in range(15):
        broker.append("orders", [f"{number:154}".encode()] * 2)
log = Path("data/orders-0/00000000000000000020.log")
log.write_bytes(log.read_bytes().replace(f"{11:154}".encode(), f"{12:154}".encode()))
```
```console
$ python missing.py
$ triolog repair data | tail -1
1 damage: 2 actions taken, no byte deleted; checked again: no damage is left
```
"""
"""A log in which offsets 22 and 23 are missing."""

FLIGHTS: Final = """
```python title="flights.py"
print("tail,departed,delay")
for number in range(20_000):
    day, hour, minute = 3 + number // 10_000, number % 10_000 * 24 // 10_000, number * 7 % 60
    print(f"N{100 + number * 7 % 400},2013-07-0{day}T{hour:02}:{minute:02},{number * 13 % 104}")
```
```python title="year.py"
import triolog.blocking
from triolog.tools.demo.flights import find_source, load_flights

with triolog.blocking.open("flights-data", durability="os", config={"segment.bytes": "1000000"}) as broker:
    broker.create_topic("flights", partitions=3, config={"retention.ms": "-1"})
    flights = load_flights(find_source(), 20_000)
    for partition in range(3):
        records = [(each.timestamp, each.key, each.value, ()) for each in flights if each.partition == partition]
        for first in range(0, len(records), 500):
            broker.append("flights", records[first : first + 500], partition=partition)
```
```console
$ python flights.py > flights.csv && python year.py && echo secret > alice.txt
```
"""

OPEN_TRANSACTION: Final = """
```python title="mover.py"
import os

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "127.0.0.1:9092", "transactional.id": "mover"})
producer.init_transactions()
producer.begin_transaction()
for partition in range(2):
    producer.produce("flights", b"moved", partition=partition)
producer.flush()
os._exit(0)
```
```console
$ python mover.py
```
"""

WITH_RIGHTS: Final = """
```toml title="rights.toml"
acl_enable = true
allow_everyone_if_no_acl_found = true
super_users = "User:ANONYMOUS"
```
""" + typed("$ triolog serve --data-dir data --kafka 127.0.0.1:9092 --config rights.toml")

WRITER: Final = """
```python title="writer.py"
import os
import time

import triolog

with triolog.blocking.connect(os.environ["TRIOLOG_SERVER"]) as client:
    while True:
        client.append("readings", [b"21.5"] * 100)
        print("writes", flush=True)
        time.sleep(0.1)
```
""" + typed("$ python writer.py &", "writes")

SCREEN: Final = """
```python title="screen.py"
from confluent_kafka import Consumer

settings = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "screens", "client.id": "screen"}
consumer = Consumer({**settings, "enable.auto.commit": False})
consumer.subscribe(["flights"], on_assign=lambda consumer, partitions: print("connected", flush=True))
while True:
    consumer.poll(1)
```
```console
$ python screen.py &
connected
```
"""

DAMAGED: Final = """
```python title="damage.py"
import shutil
from pathlib import Path

shutil.copytree("flights-data", "copy")
log = sorted(Path("copy/flights-1").glob("*.log"))[1]
data = bytearray(log.read_bytes())
data[len(data) // 2] ^= 1
log.write_bytes(data)
```
```console
$ python damage.py
```
"""

USERS: Final = """
```python title="users.py"
import triolog.blocking

with triolog.blocking.open("data") as broker:
    broker.create_topic("users", config={"cleanup.policy": "compact"})
    for number in range(100):
        broker.append("users", [(None, b"alice", str(number).encode(), ())])
```
```console
$ python users.py
```
"""

READINGS: Final = f"""
{SERVED}
```console
$ for topic in readings alarms; do triolog topics create $topic && triolog produce $topic -m 1; done > /dev/null
```
"""

LINKED: Final = typed(
    "$ triolog forward drain plant-7 > /dev/null", "^C", "$ triolog forward --config forward.toml", "...link plant-7...", "^C"
)
PLAIN_LINK: Final = """
```toml title="forward.toml"
[[forward]]
name = "plant-7"
to = "kafka.example:9092"
topics = ["readings", "alarms"]
```
"""

KAFKA: Final = """
```python title="kafka.py"
import sys
from pathlib import Path

import triolog.blocking

with triolog.blocking.open("/var/lib/kafka") as broker:
    broker.create_topic("flights", partitions=int(sys.argv[1]))
Path("/var/lib/kafka/topics.json").unlink()
```
"""
"""The directory of a stopped Kafka in which the topic has been created."""

MIGRATED: Final = f"""
```python title="served.py"
import triolog.blocking

with triolog.blocking.open("/var/lib/triolog", config={{"segment.bytes": "1000"}}) as broker:
    broker.create_topic("flights", partitions=2, config={{"durability": "fsync"}})
    for number in range(30):
        broker.append("flights", [bytes(100)], partition=number % 2)
```
{KAFKA}
```console
$ python served.py && python kafka.py 2
```
"""

ADOPTED: Final = f"""
{KAFKA}
```console
$ python kafka.py 1
$ triolog serve --data-dir /var/lib/kafka --topic-config topics.toml
$ triolog topics list | grep -o "retention.ms.*\\|durability.*"
retention.ms=-1 durability=group:100
```
"""

SETTINGS: Final = typed("$ triolog config show -c server.toml > /dev/null")
FAULTS: Final = typed(
    "$ triolog serve --data-dir data --faults faults.yaml --control 127.0.0.1:0",
    "$ curl -s localhost:4003/faults | grep -o NOT_LEADER_OR_FOLLOWER",
    "NOT_LEADER_OR_FOLLOWER",
)

PASSWORDS: Final = """
```python title="getpass.py"
def getpass():
    return "kitchen"
```
"""
"""The terminal at which a person types a password."""

LOGINS: Final = """
```toml title="logins.toml"
native_security = "sasl_plaintext"
sasl_users_file = "users.toml"
```
```console
$ sed -i '/^"scram-sha-512"/d' users.toml && echo "\\"scram-sha-512\\" = \\"$(python scram.py)\\"" >> users.toml
$ echo kitchen > robot.txt && echo "change me" > admin.txt
$ triolog serve --data-dir data --config logins.toml
$ for user in robot admin; do triolog topics list --json --user $user --password-file $user.txt; done
[]
[]
```
"""

PRODUCER: Final = """
```python title="producer.py"
import time
from urllib.request import urlopen

from confluent_kafka import Producer

while b"orders" not in urlopen("http://127.0.0.1:4003/faults").read():
    time.sleep(0.01)
producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
producer.produce("orders", b"latte")
producer.flush()
```
```console
$ triolog topics create orders
created orders with 1 partition
$ python producer.py &
```
"""

COPIED: Final = (
    typed("$ triolog serve --data-dir target")
    + created("flights")
    + typed("$ python -c \"from again import copy; print(copy('data', '127.0.0.1:9095', 'flights'))\"", "4")
)

COFFEES: Final = """
```python title="coffees.py"
from confluent_kafka import Consumer, Producer, TopicPartition

servers = {"bootstrap.servers": "kafka.example:9092"}
producer = Producer(servers)
producer.produce("orders", b"latte")
producer.flush()
consumer = Consumer({**servers, "group.id": "baristas"})
consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
consumer.close()
```
```console
$ python coffees.py
```
"""

PREPARED: Final[dict[str, dict[str, str]]] = {
    "troubleshooting.md": {"$ triolog topics create orders": SERVED},
    "analysis.md": {"from triolog.tools import arrow\n\n\ndef copy": BLOCK + COPIED},
    "cli.md": {
        "$ triolog topics create flights": FLIGHTS + WITH_RIGHTS,
        "$ triolog produce flights": created("readings"),
        "$ triolog transactions list": OPEN_TRANSACTION,
        "$ triolog connections": SCREEN,
        "$ triolog gaps": STOPPED + STOPPED + MISSING + WITH_RIGHTS,
        "$ triolog top --once": WRITER,
        "$ triolog dump": STOPPED + STOPPED + STOPPED,
        "$ triolog verify": DAMAGED,
        "$ triolog compact": USERS,
        "$ triolog backup": typed("$ rm -r copy"),
        "$ triolog export-kafka flights-data /": KAFKA + typed("$ python kafka.py 3"),
        "$ triolog forward --to": SERVED,
        "$ triolog forward status": typed("$ triolog forward drain north > /dev/null"),
        "$ TRIOLOG_KAFKA": typed("$ echo 'node_id = 7' > server.toml"),
    },
    "console.md": {"$ triolog console": SERVED + created("flights")},
    "forward.md": {
        "$ triolog forward --to": READINGS,
        'server = "127.0.0.1:9095"': BLOCK + LINKED,
        "$ triolog forward --config forward.toml reset": PLAIN_LINK,
        "$ triolog forward --from-dir": STOPPED,
    },
    "kafka-migration.md": {"$ triolog verify": MIGRATED},
    "mirror.md": {"$ triolog serve --config second.toml": COFFEES},
    "operations/directories.md": {"[topic.flights]": BLOCK + ADOPTED},
    "operations/gaps.md": {"$ triolog gaps list": MISSING + SERVED + created("payments")},
    "operations/security.md": {
        'kafka = "0.0.0.0:9092"': BLOCK + SETTINGS,
        "[admin]": PASSWORDS + BLOCK,
        "import getpass": BLOCK + LOGINS,
        'kafka_security = "sasl_ssl"': BLOCK + SETTINGS,
    },
    "operations/space.md": {"$ triolog topics alter readings": SERVED + created("readings")},
    "operations/test-servers.md": {"faults:": BLOCK + FAULTS},
    "reference/configuration.md": {"data_dirs": BLOCK + SETTINGS},
    "testing-with-triolog.md": {"$ curl": PRODUCER},
}
"""By page and beginning of a block."""

JVM: Final = "it needs Spark and a stream without an end: tests/tools/spark/jvm runs the sources and the sink"
KAFKAS: Final = "it needs Apache Kafka's scripts"
FILES: Final = "it follows the log of a web server: tests/tools/ingest/test_file_sigkill.py runs the command"
MQTT: Final = "it needs a broker of MQTT: tests/tools/ingest runs links with Mosquitto"
MIRROR: Final = "it needs a source: tests/tools/mirror runs links between two servers"
NETWORK: Final = "it needs a network: tests/test_packaging.py installs the wheel into an empty environment"
RECIPE: Final = "tests/test_recipes.py runs it"
NOT_RUN: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "make demo": "tests/tools/demo runs the demo",
        "make test": "it is the suite itself",
        "from confluent_kafka import Producer": "tests/test_testing_docs.py runs it under pytest",
    },
    "cli.md": {"triolog ingest mqtt": MQTT, "triolog mirror": MIRROR},
    "contributing.md": {"make test": "it is the suite itself"},
    "edge.md": {
        "make edge-demo": "it mounts a file system and takes a minute: tests/tools/demo/edge runs it",
        "TRIOLOG_TEST=long make test": "it is a test of the long tier",
        "apt-get install qemu-user-static": "it downloads packages for another machine",
        'data_dirs = ["/var/lib/triolog"]': MQTT,
        "triolog ingest mqtt": MQTT,
        "triolog serve --native": FILES,
        "[[ingest]]": FILES,
        "triolog serve --config triolog.toml": MQTT,
    },
    "index.md": {"python3 -m venv .venv": NETWORK},
    "install.md": {"python3 -m venv .venv": NETWORK},
    "kafka-migration.md": {
        "bin/kafka-storage.sh": f"{KAFKAS}: tests/kafka takes these steps",
        "triolog export-kafka": f"{KAFKAS}: tests/kafka takes these steps",
    },
    "mirror.md": {
        'data_dirs = ["/var/lib/triolog"]': MIRROR,
        "triolog promote": MIRROR,
        "triolog demote": MIRROR,
    },
    "native-protocol.md": {
        "000000": "tests/protocol/native/test_documentation.py reads the bytes",
    },
    "operations/containers.md": {
        "docker": "it needs Docker",
        "from triolog.tools.testcontainers": "it needs Docker",
        "steps:": "it needs a CI service with containers",
    },
    "operations/monitoring.md": {
        "- alert: TriologLosesData": "it needs Prometheus",
        "kafka-client-metrics": KAFKAS,
    },
    "operations/security.md": {"kafka-configs": KAFKAS},
    "operations/unattended.md": {"python3 -m venv": "it needs root and systemd: tests/test_unit_files.py"},
    "other-languages.md": {
        "const {": RECIPE,
        "const assert": RECIPE,
        "package orders": RECIPE,
        "import java.io": RECIPE,
        "import static org.junit": RECIPE,
        "[package]": RECIPE,
        "use std::io": RECIPE,
        "mod triolog;": RECIPE,
        "jobs:": "it needs a CI service",
    },
    "releasing.md": {"python3 triolog.pyz": "tests/test_packaging.py builds that file and serves from it"},
    "schema-registry.md": {
        "triolog serve --schema-registry": "tests/server/registry/test_process.py starts it so",
        "triolog sql --schema-registry": "tests/tools/cli/sql/test_schema_registry.py asks so",
    },
    "spark.md": {
        "from triolog.tools.spark.session import session": JVM,
        "def write(rows, number):": JVM,
        "from triolog.tools.spark.lag": JVM,
        "triolog spark pack": "it needs a cluster of Spark",
        "export SPARK_HOME": "it needs a cluster of Spark",
    },
    "testing-with-triolog.md": {
        "from confluent_kafka.schema_registry": "tests/test_testing_docs.py runs it under pytest",
        "import pytest": "tests/test_testing_docs.py runs it under pytest",
        "def test_words": "it needs two instances of a Kafka Streams application, so a JVM",
        "def test_the_second": "tests/test_testing_docs.py runs it under pytest",
    },
    "tutorials/embed.md": {"@asynccontextmanager": "it is a part of an application: cookbook.md has a whole one"},
}
"""By page and beginning of a block that no reader follows: the reason."""
