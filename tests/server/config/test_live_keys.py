from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from triolog.server.config import Durability, LogConfig
from triolog.server.config.broker_config import BROKER_KEYS, Address, BrokerConfig
from triolog.server.config.broker_settings import LIVE_KEYS, Difference, differences, with_live_keys
from triolog.server.config.values import LogLevel

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
