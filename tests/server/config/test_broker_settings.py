"""A file, variables and arguments in rising precedence; the table of the server's keys, those that are live, addresses, and the
listeners that other machines reach."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import attrs
import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config import Durability, LogConfig
from triolog.server.config.broker_config import BROKER_KEYS, Address, BrokerConfig
from triolog.server.config.broker_settings import (
    LINK_TABLES,
    LIVE_KEYS,
    Difference,
    check_exposure,
    differences,
    exposed,
    read_settings,
    read_topic_configs,
    with_live_keys,
)
from triolog.server.config.listener_security import ClientAuth, ListenerSecurity
from triolog.server.config.values import LogLevel, is_loopback


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "triolog.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_number_that_is_none_is_refused_by_name() -> None:
    for name in (name for name, key in BROKER_KEYS.items() if key.type in ("int", "long")):
        for value in ("x", "", "1.5", 1.5, True, [], -2, 2**62):
            with pytest.raises(InvalidConfigError, match=f"the command line: {name}: "):
                read_settings(None, {}, {name: value})


def test_nothing_said_is_fsync_and_nothing_else_and_a_file_has_to_be_there() -> None:
    settings = read_settings(None, {}, {})
    assert settings == {"topic_defaults": LogConfig(durability=Durability.parse("fsync"))}
    with pytest.raises(FileNotFoundError):
        read_settings("none.toml", {}, {})


def test_a_file_says_everything(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        data_dirs = ["/a", "/b"]
        native = "0.0.0.0:1234"
        durability = "group:20"
        node_id = 3
        cluster_id = "mine"
        max_connections = 7

        [topic_defaults]
        retention.ms = -1
        "segment.bytes" = 1000000
        preallocate = true
        "cleanup.policy" = "compact"
        """,
    )
    settings = read_settings(file, {}, {})
    config = BrokerConfig(**settings)
    assert config.data_dirs == ("/a", "/b")
    assert config.native == Address(host="0.0.0.0", port=1234)
    assert (config.node_id, config.cluster_id, config.max_connections) == (3, "mine", 7)
    assert config.topic_defaults == LogConfig().overlay(
        {
            "durability": "group:20",
            "retention.ms": "-1",
            "segment.bytes": "1000000",
            "preallocate": "true",
            "cleanup.policy": "compact",
        }
    )


def test_variables_win_over_the_file_and_arguments_over_both(tmp_path: Path) -> None:
    file = written(tmp_path, 'node_id = 1\nmax_connections = 1\nmax_in_flight = 1\ndata_dirs = ["/file"]\ndurability = "os"')
    environment = {
        "TRIOLOG_MAX_CONNECTIONS": "2",
        "TRIOLOG_MAX_IN_FLIGHT": "2",
        "TRIOLOG_DATA_DIRS": "/one,/two",
        "TRIOLOG_DURABILITY": "group:9",
        "PATH": "/bin",
    }
    settings = read_settings(file, environment, {"max_in_flight": 3, "native": None, "durability": None})
    assert (settings["node_id"], settings["max_connections"], settings["max_in_flight"]) == (1, 2, 3)
    assert settings["data_dirs"] == ("/one", "/two")
    assert "native" not in settings
    assert settings["topic_defaults"].durability == Durability.parse("group:9")
    assert read_settings(file, environment, {"durability": "fsync"})["topic_defaults"].durability == Durability.parse("fsync")
    file = written(tmp_path, 'durability = "os"\n[topic_defaults]\ndurability = "group:4"')
    assert read_settings(file, {}, {})["topic_defaults"].durability == Durability.parse("group:4"), "the default of topics wins"


def test_variables_of_others_are_left_alone() -> None:
    environment = {"TRIOLOG_TEST": "full", "TRIOLOG_SERVER": "host:1", "TRIOLOG_TEST_ANYTHING": "x", "triolog_node_id": "5"}
    environment |= {"TRIOLOG_USER": "alice", "TRIOLOG_PASSWORD": "secret", "TRIOLOG_PASSWORD_FILE": "file"}
    kinds = {table.partition("_")[0] for table in LINK_TABLES}
    environment |= {f"TRIOLOG_{kind.upper()}_DIR": "/run/links" for kind in kinds}
    assert set(read_settings(None, environment, {})) == {"topic_defaults"}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TRIOLOG_NO_SUCH_KEY": "1"}, "the environment: unknown key 'no_such_key'. `triolog config show` lists the keys"),
        ({"TRIOLOG_MAX_CONECTIONS": "1"}, "the environment: unknown key 'max_conections'. Did you mean max_connections?"),
        ({"TRIOLOG_NATIVE": "nowhere"}, "the environment: native: 'nowhere' is not HOST:PORT"),
        ({"TRIOLOG_DATA_DIRS": ""}, "the environment: data_dirs: "),
        ({"TRIOLOG_DURABILITY": "soon"}, "the environment: durability: durability 'soon'"),
        ({"TRIOLOG_CLUSTER_ID": ""}, "the environment: cluster_id: '' is not text"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_in_a_variable_is_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        read_settings(None, environment, {})
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_such_key = 1", "unknown key 'no_such_key'"),
        ("this is no toml", "is not TOML"),
        ("data_dirs = 5", "data_dirs: 5 is not a list of directories"),
        ("data_dirs = []", "data_dirs: [] is not a list"),
        ('data_dirs = ["", "a"]', "is not a list of directories"),
        ("native = 5", "native: 5 is not text"),
        ("topic_defaults = 5", "topic configuration is a table"),
        ("[topic_defaults]\nno.such = 1", "unknown topic configuration key 'no.such'"),
        ("[server]\nnode_id = 1", "unknown key 'server'"),
        ("cluster_id = " + "[" * 5000, "is not TOML"),
        ("cluster_id = 'é'".encode("latin-1"), "is not TOML"),
        ('[topic_defaults]\n"segment.bytes" = 3', "segment.bytes='3'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file(tmp_path: Path, text: str | bytes, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidConfigError) as raised:
        read_settings(file, {}, {})
    assert file in raised.value.message
    assert said in raised.value.message


def test_configuration_of_adopted_topics_is_read_by_topic(tmp_path: Path) -> None:
    file = written(
        tmp_path, '[topic.orders]\nretention.ms = -1\n[topic."a.b"]\n"cleanup.policy" = "compact"\npreallocate = false'
    )
    assert read_topic_configs(file) == {
        "orders": {"retention.ms": "-1"},
        "a.b": {"cleanup.policy": "compact", "preallocate": "false"},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[topics.orders]\nretention.ms = 1", "holds topics"),
        ("topic = 5", "Only tables [topic.NAME]"),
        ("[topic]\norders = 5", "[topic.orders]"),
        ("[topic.orders]\nno.such = 5", "unknown topic configuration key 'no.such'"),
        ("[topic.orders]\nsegment.ms = 0", "[topic.orders]: topic configuration segment.ms='0'"),
        ("[topic", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_configuration_of_adopted_topics_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        read_topic_configs(written(tmp_path, text))
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9095", "127.0.0.1", 9095),
        ("[::1]:0", "::1", 0),
        ("localhost:65535", "localhost", 65535),
        ("::1:80", "::1", 80),
    ],
)
def test_an_address_is_read_and_written(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert (address.host, address.port) == (host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "localhost", ":80", "[]:80", "host:", "host:x", "host:-1", "host:65536", "host:٣"])
def test_what_is_no_address_is_refused_with_what_was_found(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT") as raised:
        Address.parse(text)
    assert repr(text) in str(raised.value)


EVERYWHERE = Address("0.0.0.0", 9095)


def test_what_only_this_machine_reaches() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "::", "10.0.0.1", "fe80::1", "gateway", "localhost.b", "::ffff:10.0.0.1", ""):
        assert not is_loopback(host), host


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({}, ("native", "kafka", "metrics")),
        ({"native_security": ListenerSecurity.SASL_PLAINTEXT}, ("kafka", "metrics")),
        ({"kafka_security": ListenerSecurity.SSL}, ("native", "kafka", "metrics")),
        (
            {"kafka_security": ListenerSecurity.SSL, "kafka_ssl_client_auth": ClientAuth.REQUESTED},
            ("native", "kafka", "metrics"),
        ),
        ({"kafka_security": ListenerSecurity.SSL, "kafka_ssl_client_auth": ClientAuth.REQUIRED}, ("native", "metrics")),
        ({"kafka_ssl_client_auth": ClientAuth.REQUIRED}, ("native", "kafka", "metrics")),
        ({"metrics_token_file": "token"}, ("native", "kafka")),
    ],
)
def test_listeners_that_ask_nobody_who_he_is(keys: dict[str, Any], found: tuple[str, ...]) -> None:
    config = BrokerConfig(data_dirs=("d",), **keys)
    assert exposed(config, dict.fromkeys(("native", "kafka", "metrics"), EVERYWHERE)) == found
    assert exposed(config, dict.fromkeys(("native", "kafka", "metrics"), Address("127.0.0.1", 1))) == ()


def test_it_has_to_be_wanted() -> None:
    addresses = {"native": Address("127.0.0.1", 1), "kafka": EVERYWHERE, "metrics": None}
    with pytest.raises(
        InvalidConfigError, match=r"kafka 0\.0\.0\.0:9095: other machines can reach.*kafka_security.*--insecure"
    ):
        check_exposure(BrokerConfig(data_dirs=("d",)), addresses)
    assert check_exposure(BrokerConfig(data_dirs=("d",), insecure=True), addresses) == ("kafka",)


CONFIG = BrokerConfig(data_dirs=("a", "b"))
PAGE = Path(__file__).resolve().parents[3] / "docs/operations/unattended.md"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"log_level": LogLevel.ERROR}, "log_level: info -> error"),
        ({"data_dirs": ("a",)}, "data_dirs: a,b -> a"),
        ({"kafka": Address("h", 1)}, "kafka: not set -> h:1"),
        ({"acl_enable": True}, "acl_enable: false -> true"),
        ({"super_users": ("User:a",)}, "super_users: none -> User:a"),
        (
            {"topic_defaults": LogConfig().overlay({"segment.bytes": "5000"})},
            "topic_defaults segment.bytes: 1073741824 -> 5000",
        ),
        ({"topic_defaults": LogConfig(durability=Durability.parse("os"))}, None),
    ],
)
def test_a_difference_has_both_values(changes: dict[str, object], said: str | None) -> None:
    found = differences(CONFIG, attrs.evolve(CONFIG, **changes))
    assert [str(each) for each in found] == ([] if said is None else [said])


def test_equal_settings_do_not_differ() -> None:
    assert differences(CONFIG, attrs.evolve(CONFIG)) == []


def test_only_live_keys_are_taken_over() -> None:
    new = attrs.evolve(CONFIG, num_partitions=5, max_connections=7, log_level=LogLevel.DEBUG)
    taken = with_live_keys(CONFIG, new)
    assert (taken.num_partitions, taken.log_level, taken.max_connections) == (5, LogLevel.DEBUG, CONFIG.max_connections)
    assert {each.name for each in differences(CONFIG, taken)} <= LIVE_KEYS
    assert [each.name for each in differences(taken, new)] == ["max_connections"]
    assert not Difference("max_connections", "1", "2").is_live


def test_live_keys_are_keys_and_the_page_names_each() -> None:
    assert set(BROKER_KEYS) >= LIVE_KEYS
    assert {
        name for name in BROKER_KEYS if f"`{name}`" in PAGE.read_text().partition("## SIGHUP")[2].partition("\n## ")[0]
    } == LIVE_KEYS


SHOWN_FOR_WHAT_COMES_LATER = {"native", "node_id", "cluster_id", "durability"}
"""None in the configuration: whoever needs the value chooses it. The table says what that is."""


def test_the_default_that_is_printed_is_the_one_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    config = BrokerConfig(data_dirs=())
    for name in BROKER_KEYS.keys() - SHOWN_FOR_WHAT_COMES_LATER:
        key, found = BROKER_KEYS[name], getattr(config, name)
        assert found in (None, ()) if key.default_text == "-" else key.read(key.default_text) == found, name


def test_a_key_has_the_unit_that_its_name_ends_in() -> None:
    assert {name: BROKER_KEYS[name].unit for name in ("stop_grace_ms", "max_frame_bytes", "scrub_bytes_per_second")} == {
        "stop_grace_ms": "ms",
        "max_frame_bytes": "bytes",
        "scrub_bytes_per_second": "bytes/s",
    }
    assert BROKER_KEYS["max_records_per_batch"].unit == ""


def test_fields_that_programs_set_are_no_keys() -> None:
    fields = {field.name for field in attrs.fields(BrokerConfig)}
    assert fields - BROKER_KEYS.keys() == {"topic_defaults", "sasl_users", "token_authority", "adopted_topics", "durable"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("kafka_security", "SASL_SSL", ListenerSecurity.SASL_SSL),
        ("native_security", "ssl", ListenerSecurity.SSL),
        ("native_security", "sasl_ssl", ListenerSecurity.SASL_SSL),
        ("kafka_ssl_client_auth", "required", ClientAuth.REQUIRED),
        ("sasl_enabled_mechanisms", "PLAIN,SCRAM-SHA-512", ("PLAIN", "SCRAM-SHA-512")),
        ("super_users", "User:CN=a,O=b; User:c", ("User:CN=a,O=b", "User:c")),
    ],
)
def test_keys_of_security_are_read(name: str, text: str, value: object) -> None:
    assert BROKER_KEYS[name].read(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka_security", "tls"),
        ("native_security", "sasl"),
        ("native_ssl_client_auth", "yes"),
        ("sasl_enabled_mechanisms", "GSSAPI"),
        ("sasl_enabled_mechanisms", ""),
        ("super_users", "alice"),
    ],
)
def test_wrong_values_of_security_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of|is not a list"):
        BROKER_KEYS[name].read(text)
