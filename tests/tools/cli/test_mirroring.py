"""`triolog mirror`, `promote` and `demote` on real servers, which are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest
from triolog.server.broker.mirroring import Mirroring, MirrorProgress
from triolog.tools.mirror.settings import LINK_KEYS

from tests.support.forwarding import until
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.server_process import Address, ServerFolder, ServerProcess
from tests.tools.cli.conftest import Cli, call


def table(address: object, links: Path, more: str = "internal_topics = true") -> str:
    return f'[[mirror]]\nfrom = "{address}"\nstate_dir = "{links}"\n{more}\n'


def status(links: Path) -> dict[str, object]:
    told = call("mirror", "--state-dir", links, "--json")
    return dict(json.loads(told.stdout)) if told.exit_code == 0 else {}


def end(server: ServerProcess) -> int:
    """-1 before the topic is there."""
    asked = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    with KafkaWire.connect(server.address_of("kafka")) as wire:
        [topic] = wire.call(ask("ListOffsets", replica_id=-1, topics=[asked]), 2).topics
    return int(topic.partitions[0].offset)


def text(address: Address) -> str:
    return f"{address.host}:{address.port}"


def append(server: ServerProcess, *values: str) -> None:
    done = call("produce", "orders", "-s", text(server.address), input="".join(f"{each}\n" for each in values))
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("quality = 3", "unknown key 'quality'"),
        ("internal_topics = 3", "internal_topics"),
        ('user = "me"', "user and password go together"),
        ('topics = ["__consumer_offsets"]', "set internal_topics = true"),
        ('password = "secret"', "a secret is"),
        ('from = "nowhere"', "TOML"),
    ],
)
def test_a_bad_table_is_a_usage_error(tmp_path: Path, more: str, why: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f'data_dirs = ["{tmp_path}/data"]\n' + table("127.0.0.1:1", tmp_path, more))
    result = call("serve", "--config", file)
    assert (result.exit_code, why in result.stderr) == (2, True), result.stderr


def test_without_a_server_the_commands_say_so(tmp_path: Path) -> None:
    result = call("mirror", "--state-dir", tmp_path)
    assert (result.exit_code, "runs a mirror" in result.stderr) == (3, True)
    result = call("promote", "--state-dir", tmp_path)
    assert (result.exit_code, "no server here runs a mirror" in result.stderr) == (1, True)
    result = call("demote", tmp_path)
    assert (result.exit_code, "has no topics.json with topics" in result.stderr) == (1, True)


def progress(state: str, lag_ms: float = 12.0, *, error: str = "", troubles: tuple[str, ...] = ()) -> MirrorProgress:
    lag: dict[str, int] = {"lag_records": 3, "lag_bytes": 2048}
    place = {"link": "source", "source": "board:9092", "state": state, "error": error}
    return MirrorProgress(**place, **lag, lag_ms=lag_ms, topics=1, partitions=2, copied_bytes=9, troubles=troubles)  # type: ignore[arg-type]


def test_status_and_top_show_mirrors_over_the_network(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "mirror" not in cli.ok("status")
    shown = progress("copying"), progress("stopped", -1, error="not a \x1b triolog", troubles=tuple(map(str, range(20))))
    monkeypatch.setattr(Mirroring, "progress", lambda _: shown)
    copying = "mirror source from board:9092: copying, 2 partitions, lag 12 ms, 3 records, about 2.0 KiB"
    stopped = "mirror source from board:9092: stopped, 2 partitions, lag unknown, 3 records, about 2.0 KiB"
    for arguments, most in ((("status",), 10), (("top", "--once", "--interval", "0.1"), 1)):
        lines = [" ".join(line.split()) for line in cli.ok(*arguments).splitlines()]
        at = lines.index(copying)
        after = lines[at + 1 : at + 3 + most]
        troubles = [r"not a \x1b triolog", *map(str, range(most - 1))]
        assert after == [stopped, *troubles, f"{21 - most} more: `triolog mirror` on that machine lists them"]
        told = cli.json(*arguments)["mirrors"]
        assert [(each["state"], each["lag_ms"], each["lag_bytes"], len(each["troubles"])) for each in told] == [
            ("copying", 12, 2048, 0),
            ("stopped", -1, 2048, 20),
        ]


@pytest.mark.merge  # three servers are processes
def test_both_servers_are_killed_the_mirror_is_promoted_and_the_old_server_returns(tmp_path: Path) -> None:
    first, second, links = tmp_path / "first", tmp_path / "second", tmp_path / "links"
    for each in (first, second):
        each.mkdir()
    file = second / "server.toml"
    kafka = ("--kafka", "127.0.0.1:0")
    with ServerFolder(first) as source_folder, ServerFolder(second) as mirror_folder:
        source = source_folder.start(*kafka)
        call("topics", "create", "orders", "-s", text(source.address))
        append(source, *(f"first {number}" for number in range(20)))
        file.write_text(table(text(source.address_of("kafka")), links))
        mirror = mirror_folder.start("--config", str(file), "--metrics", "127.0.0.1:0", *kafka)
        until(lambda: end(mirror) > 0, "the copy")
        os.kill(mirror.pid, signal.SIGKILL)
        append(source, *(f"second {number}" for number in range(20)))
        mirror = mirror_folder.start("--config", str(file), "--metrics", "127.0.0.1:0", *kafka)
        until(lambda: end(mirror) == 40 and status(links)["lag_records"] == 0, "the rest of the copy")
        refused = call("produce", "orders", "-s", text(mirror.address), input="no\n")
        assert (refused.exit_code, "is a mirror of source and read-only" in refused.stderr) == (1, True), refused.stderr
        url = f"http://127.0.0.1:{mirror.address_of('metrics').port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            scraped = answer.read().decode()
        assert 'triolog_mirror_state{link="source",state="copying"} 1.0' in scraped
        assert 'triolog_mirror_lag_records{link="source"} 0.0' in scraped
        os.kill(source.pid, signal.SIGKILL)
        until(lambda: status(links)["state"] == "connecting", "the loss of the source")
        shown = call("mirror", "--state-dir", links)
        assert (shown.exit_code, "source from 127.0.0.1:" in shown.stdout) == (0, True)
        promoted = call("promote", "--state-dir", links)
        assert (promoted.exit_code, "source promoted: 1 topic" in promoted.stdout) == (0, True), promoted.output
        append(mirror, "new")
        assert mirror.stop() == 0
        mirror = mirror_folder.start(*kafka)
        assert end(mirror) == 41

        source = source_folder.start(*kafka)
        append(source, "only here", "and here")
        assert source.stop() == 0
        done = call("demote", source_folder.data_dir)
        assert (done.exit_code, "1 topic will be copied from source" in done.stdout) == (0, True), done.output
        back = first / "server.toml"
        back.write_text(table(text(mirror.address_of("kafka")), links, ""))
        source = source_folder.start("--config", str(back), *kafka)
        until(lambda: end(source) == 41 and status(links)["set_aside"] != [], "the copy of the other server")
        shown = call("mirror", "--state-dir", links)
        assert "set aside: orders-0 offsets 40 to 41, 2 records" in shown.stdout


def test_the_page_has_every_key_with_its_meaning() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "mirror.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [a-z]+ \| .+? \| (.+) \|$", page, re.MULTILINE))
    assert rows == {name: key.doc for name, key in LINK_KEYS.items()}
