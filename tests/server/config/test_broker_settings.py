"""A file, variables and arguments in rising precedence; what is refused, and by which name."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config import Durability, LogConfig
from triolog.server.config.broker_config import BROKER_KEYS, Address, BrokerConfig
from triolog.server.config.broker_settings import read_settings, read_topic_configs


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "triolog.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_number_that_is_none_is_refused_by_name() -> None:
    for name in (name for name, key in BROKER_KEYS.items() if key.type in ("int", "long")):
        for value in ("x", "", "1.5", 1.5, True, [], -2, 2**62):
            with pytest.raises(InvalidConfigError, match=f"the command line: {name}: "):
                read_settings(None, {}, {name: value})


def test_nothing_said_is_fsync_and_nothing_else() -> None:
    settings = read_settings(None, {}, {})
    assert settings == {"topic_defaults": LogConfig(durability=Durability.parse("fsync"))}


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
    assert set(read_settings(None, environment, {})) == {"topic_defaults"}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TRIOLOG_NO_SUCH_KEY": "1"}, "the environment: unknown key 'no_such_key'. `triolog config show` lists the keys"),
        ({"TRIOLOG_MAX_CONECTIONS": "1"}, "the environment: unknown key 'max_conections'. Did you mean max_connections?"),
        ({"TRIOLOG_NATIVE": "nowhere"}, "the environment: native: 'nowhere' is not HOST:PORT"),
        ({"TRIOLOG_DATA_DIRS": ""}, "the environment: data_dirs: "),
        ({"TRIOLOG_DURABILITY": "soon"}, "the environment: durability: durability 'soon'"),
        ({"TRIOLOG_CLUSTER_ID": ""}, "the environment: cluster_id: '' is not a text"),
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
        ("native = 5", "native: 5 is not a text"),
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


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_settings(str(tmp_path / "none.toml"), {}, {})


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
        ("topic = 5", "only tables [topic.NAME]"),
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
