"""What an embedded broker is configured with: every key of `serve`, its defaults or those of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.broker_config import BROKER_KEYS, Address, BrokerConfig
from triolog.server.config.broker_settings import read_settings
from triolog.server.embedded import LOCALHOST, MEMORY, BlockingBroker, open_broker
from triolog.server.embedded.opening import REFUSED, TEST_DEFAULTS, Arguments, broker_config

NOT_SHOWN: Final[dict[str, Any]] = {
    "kafka": "127.0.0.1:0",
    "kafka_advertised": "127.0.0.1:9092",
    "metrics": "127.0.0.1:0",
    "native": "127.0.0.1:0",
    "node_id": 7,
    "cluster_id": "abc",
    "max_memory_bytes": 2**30,
    "metrics_token_file": "token",
    "ssl_certificate_file": "certificate",
    "ssl_key_file": "key",
    "ssl_client_ca_file": "ca",
    "sasl_users_file": "users",
    "super_users": "User:alice;User:bob",
    "audit_file": "audit",
}
"""Values of keys whose default says nothing."""


async def config_of(path: Path | str | None, **arguments: Any) -> BrokerConfig:
    async with open_broker(path, native=None, **arguments) as broker:
        return broker.core.config


def served(path: Path, **keys: Any) -> BrokerConfig:
    """What `triolog serve` would run with."""
    return BrokerConfig(**read_settings(None, {}, {"data_dirs": str(path), **keys}))


async def test_a_broker_with_a_path_has_the_defaults_of_serve(tmp_path: Path) -> None:
    assert await config_of(tmp_path) == served(tmp_path)
    assert await config_of(tmp_path, for_tests=False) == served(tmp_path)


async def test_without_one_it_has_those_of_tests_and_which_it_has_can_be_said(tmp_path: Path) -> None:
    for path, said, expected in (
        (None, {}, ("os", False)),
        (MEMORY, {}, ("os", False)),
        (tmp_path, {"for_tests": True}, ("fsync", True)),
    ):
        config = await config_of(path, **said)
        assert {name: getattr(config, name) for name in TEST_DEFAULTS} == TEST_DEFAULTS
        assert (str(config.topic_defaults.durability), config.durable) == expected
    config = await config_of(None, for_tests=False)
    assert (config.lenient, config.group_initial_rebalance_delay_ms, config.disk_reserve_bytes) == (False, 3000, -1)
    assert str(config.topic_defaults.durability) == "os"


def value_of(name: str) -> Any:
    return NOT_SHOWN.get(name, BROKER_KEYS[name].default_text)


async def test_it_takes_every_key_of_serve_as_serve_takes_it(tmp_path: Path) -> None:
    """Files and addresses that are named would be opened: only the configuration is compared."""
    absent: Any = dict.fromkeys(("native", "kafka", "metrics", "durability", "lenient"))
    nothing = Arguments(**absent, config={}, users={}, security={}, telemetry=False)
    for name in BROKER_KEYS.keys() - REFUSED.keys():
        found = broker_config(str(tmp_path), {name: value_of(name)}, nothing, is_lasting=True, for_tests=False)
        assert found == served(tmp_path, **{name: value_of(name)}), name


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_key_without_a_meaning_in_a_program_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"settings: {name} has no meaning in an embedded broker: "):
        BlockingBroker(tmp_path / "data", settings={name: "x"}).start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings",
    [{"colour": "blue"}, {"max_connections": 0}, {"lenient": "maybe"}, {"durability": "soon"}, {"kafka": "nowhere"}],
)
def test_what_serve_refuses_is_refused_in_its_words(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError) as of_serve:
        read_settings(None, {}, settings)
    with pytest.raises(InvalidConfigError) as found:
        BlockingBroker(tmp_path / "data", settings=settings).start()
    assert found.value.message[:900] == of_serve.value.message.replace("the command line", "settings")[:900]
    assert list(tmp_path.iterdir()) == []


async def test_arguments_go_before_settings(tmp_path: Path) -> None:
    settings = {
        "durability": "group:5",
        "lenient": False,
        "num_partitions": 3,
        "topic_defaults": {"retention.ms": 1000, "segment": {"bytes": 4096}},
    }
    config = await config_of(tmp_path, settings=settings, lenient=True, durability="os", config={"retention.ms": "-1"})
    assert (config.lenient, config.num_partitions) == (True, 3)
    defaults = config.topic_defaults
    assert (str(defaults.durability), defaults.retention_ms, defaults.segment_bytes) == ("os", -1, 4096)


async def test_addresses_may_come_from_settings(tmp_path: Path) -> None:
    keys = dict.fromkeys(("native", "kafka"), "127.0.0.1:0")
    async with open_broker(tmp_path, settings=keys) as broker:
        assert broker.native is not None
        assert broker.kafka is not None
    with pytest.raises(InvalidConfigError, match=r"native is said twice: 127\.0\.0\.1:0 by settings, 127\.0\.0\.1:1 by"):
        async with open_broker(tmp_path, settings=keys, native=Address("127.0.0.1", 1)):
            pass


async def test_an_address_that_other_machines_reach_is_refused_as_serve_refuses_it(tmp_path: Path) -> None:
    for listener in ({"native": Address("0.0.0.0", 0)}, {"metrics": Address("0.0.0.0", 0)}):
        with pytest.raises(InvalidConfigError, match=f"{next(iter(listener))} 0.0.0.0:0: other machines reach that"):
            async with open_broker(tmp_path, **listener):  # type: ignore[arg-type]
                pass


async def test_it_is_told_over_http_how_things_stand() -> None:
    async with open_broker(metrics=LOCALHOST, topics=["t"]) as broker:
        assert broker.metrics is not None
        stream = await trio.open_tcp_stream(*broker.metrics)
        async with stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            told = b"".join([each async for each in stream])
        assert told.startswith(b"HTTP/1.1 200")
        assert b"triolog_" in told
    async with open_broker() as broker:
        assert broker.metrics is None


def test_the_configuration_of_a_fork_has_no_port_of_the_original() -> None:
    with BlockingBroker(metrics=LOCALHOST) as broker, broker.fork() as fork:
        assert (fork.metrics, fork._target.core.config.metrics) == (None, None)
