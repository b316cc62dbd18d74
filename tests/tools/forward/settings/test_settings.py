from __future__ import annotations

from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import pytest
from triolog.server.config.broker_config import Address
from triolog.tools.cli.forward.options import _start
from triolog.tools.cli.terminal.times import parse_iso
from triolog.tools.client.procedures.topics import AtTime
from triolog.tools.forward.errors import SettingsError
from triolog.tools.forward.settings import link_settings
from triolog.tools.forward.settings.forward_settings import ForwardSettings, read_file, read_link
from triolog.tools.forward.settings.link_settings import read_start

LEAST = {"name": "a", "to": "there:9092", "topics": ["t"]}

WHOLE = """
server = "10.0.0.1:9095"
node = "gateway"
state_dir = "/var/lib/links"
metrics = "127.0.0.1:9309"

[[forward]]
name = "a"
to = "one:9093,two:9093"
topics = ["readings", "alarms"]
topic_pattern = "edge\\\\..*"
target = "{node}.{link}.{topic}"
priority = ["alarms"]
delivery = "at-least-once"
start = 2026-11-25T06:00:00Z
max_bytes_per_second = 250_000
windows = ["mon-fri 18:00-06:00", "sat,sun"]
timezone = "Europe/Berlin"
compression = "zstd"
origin_header = true
create_topics = false
dead_letter_topic = "dead"

[forward.create_config]
"retention.ms" = 1000

[forward.kafka]
security.protocol = "SASL_SSL"
"sasl.username" = "edge"
sasl.password = { variable = "EDGE_PASSWORD" }
"socket.nagle.disable" = true

[[forward]]
name = "b"
to = "elsewhere:9092"
topics = ["readings"]
"""


def settings(tmp_path: Path, text: str, *, is_servers: bool = False) -> ForwardSettings:
    file = tmp_path / "forward.toml"
    file.write_text(text)
    return ForwardSettings(**read_file(str(file), is_servers=is_servers))


def test_every_key_of_a_file_is_read_and_no_secret_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(tmp_path, WHOLE)
    assert (found.server, found.node, found.metrics) == (Address("10.0.0.1", 9095), "gateway", Address("127.0.0.1", 9309))
    first, second = found.links
    assert (first.topics, first.topic_pattern, first.priority) == (("readings", "alarms"), r"edge\..*", ("alarms",))
    assert (first.delivery, first.compression) == (link_settings.Delivery.AT_LEAST_ONCE, link_settings.Compression.ZSTD)
    assert first.timezone == ZoneInfo("Europe/Berlin")
    assert first.start == AtTime(1_795_586_400_000)
    assert len(first.windows) == 2
    assert dict(first.create_config) == {"retention.ms": "1000"}
    assert first.kafka["sasl.password"] == link_settings.Secret("variable", "EDGE_PASSWORD")
    monkeypatch.setenv("EDGE_PASSWORD", "very secret")
    assert link_settings.resolved(first.kafka) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "edge",
        "sasl.password": "very secret",
        "socket.nagle.disable": "true",
    }
    assert (second.name, second.create_topics) == ("b", True)
    assert "very secret" not in repr(first)
    assert link_settings.shown(first.kafka)["sasl.password"] == "from variable EDGE_PASSWORD"
    assert read_link("the test", {**LEAST, "timezone": "utc"}).timezone is UTC


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topic": "t"}, r"the test: unknown key 'topic'. Known keys: name, to, topics, "),
        ({"name": ""}, r"the test: name: '' is not a name"),
        ({"to": None}, r"the key 'to' is missing"),
        ({"topics": []}, r"link a: nothing to forward. Set topics or topic_pattern"),
        ({"topics": ["a/b"]}, r"topics: the topic name 'a/b' has characters other"),
        ({"topic_pattern": "("}, r"topic_pattern: '\(' is not a regular expression"),
        ({"target": "{host}"}, r"target: '\{host\}' may have \{topic\}, \{node\}, \{link\}, and nothing else in braces"),
        ({"target": "{topic"}, r"nothing else in braces"),
        ({"delivery": "twice"}, r"delivery: 'twice' is not one of exactly-once, at-least-once"),
        ({"start": "soon"}, r"start: 'soon' is not earliest, latest"),
        ({"max_bytes_per_second": -1}, r"max_bytes_per_second: -1 is not in 0"),
        ({"windows": ["25:00-26:00"]}, r"windows: '25:00-26:00' is not a span of a day"),
        ({"timezone": "Moon/Base"}, r"timezone: there is no time zone 'Moon/Base'"),
        ({"compression": "rar"}, r"compression: 'rar' is not one of none, gzip"),
        ({"kafka": {"transactional.id": "x"}}, r"kafka: transactional\.id is set by the link"),
        ({"kafka": {"sasl.password": "x"}}, r"kafka: sasl\.password: secrets are not allowed in the file itself"),
        ({"dead_letter_topic": "t"}, r"dead_letter_topic t is a topic that it forwards"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_link("the test", {key: value for key, value in {**LEAST, **change}.items() if value is not None})


def test_a_forwarders_metrics_are_open_to_others_with_a_token_or_insecure_only() -> None:
    links = (read_link("the test", LEAST),)
    for host in ("0.0.0.0", "gateway.example"):
        metrics = Address(host, 9309)
        with pytest.raises(SettingsError, match=f"metrics {host}:9309: other machines can read it"):
            ForwardSettings(links=links, metrics=metrics)
        assert not ForwardSettings(links=links, metrics=metrics, metrics_token_file="token").is_exposed
        assert ForwardSettings(links=links, metrics=metrics, insecure=True).is_exposed
    assert not ForwardSettings(links=links, metrics=Address("127.0.0.1", 9309)).is_exposed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no link: add a table"),
        ("forward = 3", r"links are tables \[\[forward\]\]"),
        ("[[forward]", "is not TOML"),
        ('servers = "a:1"\n[[forward]]\nname="a"\nto="b:1"\ntopics=["t"]', "unknown key 'servers'. Known keys: server, tls_ca"),
        ('[[forward]]\nname="a"\nto="b:1"\ntopics=["t"]\n' * 2, "two links have the name a"),
        (
            '[[forward]]\nname="a"\nto="b:1"\ntopics=["t"]\n[[forward]]\nname="c"\nto="b:1"\ntopics=["t"]',
            "links a and c would both send t to the same topic at b:1",
        ),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings(tmp_path, text)


def test_a_server_s_file_may_have_everything_else(tmp_path: Path) -> None:
    text = 'data_dirs = ["data"]\n[forward_process]\nnode = "n"\n[[forward]]\nname="a"\nto="b:1"\ntopics=["t"]'
    assert settings(tmp_path, text, is_servers=True).node == "n"
    with pytest.raises(SettingsError, match=r"\[forward_process\]: unknown key 'nodes'"):
        settings(tmp_path, text.replace("node =", "nodes ="), is_servers=True)


def test_who_reads_the_source_logs_in_with_a_password_from_a_file_or_a_variable(tmp_path: Path) -> None:
    head = 'user = "edge"\npassword = { file = "/run/secrets/triolog" }\n'
    found = settings(tmp_path, head + WHOLE)
    assert (found.user, found.password) == ("edge", link_settings.Secret("file", "/run/secrets/triolog"))
    for wrong, message in (
        ('user = "edge"\npassword = "very secret"\n', "a secret is"),
        ('password = { variable = "P" }\n', "password needs user"),
    ):
        with pytest.raises(SettingsError, match=message) as caught:
            settings(tmp_path, wrong + WHOLE)
        assert "very secret" not in str(caught.value)


def test_names_of_topics_are_found_ordered_and_made() -> None:
    there = ["a", "ab", "b", "__consumer_offsets", "__own"]
    assert link_settings.wanted_topics((), "a.*", there) == ["a", "ab"]
    assert link_settings.wanted_topics((), ".*", there) == ["__own", "a", "ab", "b"], "no topic of the server"
    assert link_settings.wanted_topics(("__own", "b", "missing"), "a", there) == ["__own", "a", "b"]
    assert link_settings.ranks(["x", "y"], ["a", "y", "x"]) == {"a": 2, "y": 1, "x": 0}, "those without priority come behind"
    assert link_settings.target_name("{node}-{link}-{topic}", topic="t{x}", node="n", link="l") == "n-l-t{x}"


@pytest.mark.parametrize(("text", "value"), [("start", "earliest"), ("earliest", "earliest"), ("end", "latest")])
def test_the_ends_of_a_log_are_the_words_of_the_settings(text: str, value: str) -> None:
    assert _start(text) == value


def test_a_time_is_the_same_time_in_the_settings() -> None:
    text = "2026-07-04T10:00Z"
    assert read_start(_start(f"@{text}")) == read_start(_start(text)) == AtTime(parse_iso(text))


@pytest.mark.parametrize("text", ["42", "-10", "+10", "max"])
def test_an_offset_is_refused_because_partitions_have_different_ones(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not start, end or a time"):
        _start(text)
