"""First attempts of newcomers, with the habits of Kafka's scripts, kcat, rpk, nats and redis-cli: each works, or one line
names the right command. `triolog serve` and `kcat -b localhost:9092` are in the last test.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import triolog
from confluent_kafka.admin import AdminClient
from triolog.server.config.values import DEFAULT_NATIVE, is_loopback
from triolog.tools.cli import serve
from triolog.tools.cli.terminal import remote

from .conftest import call

WORK: Final = [
    ("-h", "Administration:"),
    ("topic list", "t "),
    ("topics create x1 -p 3", "created x1 with 3 partitions"),
    ("consume t -n 5", '"value":"v4"'),
    ("consume t --from-beginning", '"value":"v0"'),
    ("produce t -m hi", "produced 1 record to t"),
    ("topics list --server localhost", "t "),
    # Kafka's scripts
    ("kafka-topics.sh --bootstrap-server localhost:9092 --list", "t "),
    ("kafka-topics --create --topic x2 --partitions 2 --replication-factor 1 --bootstrap-server localhost:9092", "created x2"),
    ("kafka-topics --bootstrap-server localhost:9092 --describe --topic t", "retention.ms"),
    ("kafka-console-producer.sh --bootstrap-server localhost:9092 --topic t", "produced 1 record to t"),
    ("kafka-console-producer --topic t --property parse.key=true --property key.separator=:", "produced 1 record to t"),
    ("kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic t --from-beginning", '"value":"v0"'),
    ("kafka-console-consumer --topic t --partition 0 --offset 2 --max-messages 1", '"value":"v2"'),
    ("kafka-console-consumer --topic t --from-beginning --property print.key=true --timeout-ms 1000", '"value":"v0"'),
    ("kafka-console-consumer --topic t --from-beginning --isolation-level read_committed --group other", '"value":"v0"'),
    ("kafka-consumer-groups.sh --bootstrap-server localhost:9092 --list", "g "),
    ("kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group g", "group g: Empty"),
    ("kafka-consumer-groups --group g --topic t --reset-offsets --to-earliest --dry-run", "--execute resets the offsets"),
    ("kafka-get-offsets.sh --bootstrap-server localhost:9092 --topic t", "t "),
    ("kafka-acls.sh --bootstrap-server localhost:9092 --list --topic nothing", "no rules"),
    ("kafka-acls --add --allow-principal User:bob --operation Read --topic t", "User:bob"),
    # kcat
    ("-b localhost:9092 -L", "t "),
    ("-b localhost:9092 -t t -C -o beginning -e -c 2", '"value":"v1"'),
    ("-C -b localhost:9092 -t t -o -2 -e -q", '"value":"'),
    ("consume -t t -o s@0 -e", '"value":"v0"'),
    ("-P -b localhost:9092 -t t -k key -H a=b", "produced 1 record to t"),
    ("produce -t t -K: -z zstd", "produced 1 record to t"),
    # rpk
    ("topic create x3 -p 3 -r 1 -c retention.ms=-1", "created x3 with 3 partitions"),
    ("topic describe t", "retention.ms"),
    ("topic alter-config t --set retention.ms=-1", "retention.ms=-1"),
    ("topic trim-prefix x0 -o end --no-confirm", "log start"),
    ("topic delete x9 --no-confirm", "deleted x9"),
    ("group list", "g "),
    ("group describe g", "group g: Empty"),
    ("group seek g --to start --topics t", "--execute resets the offsets"),
    ("version", "triolog "),
    # nats and redis-cli
    ("sub t -n 1", '"value":"v0"'),
    ("stream ls", "t "),
    ("stream info t", "retention.ms"),
    ("consumer ls", "g "),
    ("PING", "works"),
    ("INFO", "works"),
    ("config get max_connections", "max_connections"),
]
NAMED: Final = [
    ("serve --port 9092", "Did you mean --kafka PORT (for Kafka clients)"),
    ("kafka-configs --alter --entity-type topics --entity-name t", "`triolog topics alter NAME --config KEY=VALUE`"),
    ("kafka-topics --alter --topic t --partitions 4", "`triolog topics add-partitions NAME TOTAL`"),
    ("kafka-topics --delete --topic t", "--yes deletes"),
    ("kafka-dump-log.sh --files 0.log", "`triolog dump PATH`"),
    ("consume t -f '%k %s'", "'json', 'raw', 'table'"),
    ("topic produce t", "Did you mean `triolog produce`?"),
    ("topic consume t -n 1", "Did you mean `triolog consume`?"),
    ("topic add-partitions t -n 2", "`triolog topics add-partitions NAME TOTAL`"),
    ("cluster health", "Did you mean `triolog status`?"),
    ("security user list", "`triolog users`"),
    ("pub t hello", "To send the text itself: -m hello"),
    ("XADD t * field value", "`triolog produce TOPIC -m MESSAGE`"),
    ("XRANGE t - +", "`triolog consume TOPIC`"),
    ("MONITOR", "`triolog top`"),
    ("-s localhost topics list", "Options follow the command, as in `triolog topics list --server localhost`"),
    ("topics lsit", "Did you mean `triolog topics list`?"),
    ("consme t", "Did you mean `triolog consume`?"),
    ("produce t --mesage hi", "Did you mean --message"),
    ("consume t -o lates", "Did you mean latest?"),
    ("produce nowhere -m hi", "`triolog topics create nowhere`"),
]

RIGHTS: Final = {"acl_enable": "true", "allow_everyone_if_no_acl_found": "true", "super_users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with triolog.blocking.open(
        topics=["t", "x0", "x9"], config={"retention.ms": "-1"}, security=RIGHTS, native="127.0.0.1:0"
    ) as broker:
        for number in range(5):
            broker.append("t", [b"v%d" % number])
        address = f"127.0.0.1:{broker.native.port}"
        assert call("consume", "t", "--group", "g", "-s", address).exit_code == 0
        yield address


@pytest.fixture(autouse=True)
def usual_port(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of these tests is on a free port instead of the usual one."""
    monkeypatch.setattr(remote, "DEFAULT_SERVER", server)
    monkeypatch.setenv("TRIOLOG_SERVER", server)


def test_there_are_sixty() -> None:
    assert len({line for line, _ in (*WORK, *NAMED)}) + 2 >= 60


@pytest.mark.parametrize(("line", "words"), WORK)
def test_it_works(line: str, words: str) -> None:
    result = call(*shlex.split(line), input="key:value\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert words in result.stdout


@pytest.mark.parametrize(("line", "words"), NAMED)
def test_one_line_names_the_right_command(line: str, words: str) -> None:
    result = call(*shlex.split(line), input="")
    assert result.exit_code in (1, 2), result.output
    assert len(result.stderr.splitlines()) == 1 or "[y/N]" in result.stderr
    assert words in result.stderr


def test_without_arguments_it_serves_both_protocols_on_loopback_and_prints_three_lines_that_work(tmp_path: Path) -> None:
    assert (str(DEFAULT_NATIVE), serve.DEFAULT_KAFKA) == ("127.0.0.1:9095", "127.0.0.1:9092")
    assert is_loopback("127.0.0.1")
    free_ports = {"TRIOLOG_NATIVE": "127.0.0.1:0", "TRIOLOG_KAFKA": "127.0.0.1:0"}
    command = [sys.executable, "-m", "triolog.tools.cli"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([*command, "serve"], cwd=tmp_path, env={**os.environ, **free_ports}, **streams) as process:
        kcat, python, console = (process.stdout.readline().split(maxsplit=1) for _ in range(3))
        assert [kcat[0], python[0], console[0]] == ["kcat", "Python", "console"]
        host, _, port = kcat[1].partition("kcat -b ")[2].split()[0].partition(":")
        cluster = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(timeout=30)
        assert [broker.port for broker in cluster.brokers.values()] == [int(port)]
        printed = subprocess.run([sys.executable, *shlex.split(python[1])[1:]], capture_output=True, text=True, check=True)
        assert printed.stdout == "[]\n"
        name, *arguments = shlex.split(console[1])
        assert (name, arguments[:2]) == ("triolog", ["console", "-s"])
        assert call("topics", "list", "-s", arguments[2]).exit_code == 0
        refused = call("topics", "list", "-b", f"{host}:{port}")
        assert refused.exit_code == 3
        assert f"Is {port} the port for Kafka clients? Commands use the native one: --server {host}:9095" in refused.stderr
        process.terminate()
    assert process.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [serve.DEFAULT_DATA_DIR]
