from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.limits import MIB
from triolog.server.config.broker_config import (
    CONNECTION_BYTES,
    FIXED_BYTES,
    LEAST_MEMORY_BYTES,
    BrokerConfig,
    waiting_logs_bytes,
)
from triolog.server.config.broker_settings import read_settings

DERIVED = (
    *("max_broker_in_flight_bytes", "max_request_bytes", "max_frame_bytes", "max_unpacked_bytes", "max_connections"),
    *("cleaner_dedupe_buffer_bytes", "group_max_metadata_bytes", "max_client_memory_bytes"),
)


def config(**keys: Any) -> BrokerConfig:
    return BrokerConfig(data_dirs=("data",), **keys)


def budgets(**keys: Any) -> dict[str, int]:
    made = config(**keys)
    return {name: getattr(made, name) for name in DERIVED}


def test_without_a_cap_budgets_are_what_they_are_usually() -> None:
    usual = budgets()
    assert usual["max_broker_in_flight_bytes"] == 256 * MIB
    assert usual["max_request_bytes"] == 100 * MIB
    assert usual["cleaner_dedupe_buffer_bytes"] == 128 * MIB
    assert budgets(max_memory_bytes=2**40) == usual


@given(st.integers(LEAST_MEMORY_BYTES, 2**33))
def test_derived_budgets_fit_and_leave_a_sixteenth(cap: int) -> None:
    made = budgets(max_memory_bytes=cap)
    usual = budgets()
    assert all(0 < made[name] <= usual[name] for name in DERIVED)
    largest = max(made["max_request_bytes"], made["max_frame_bytes"])
    taken = 2 * made["max_broker_in_flight_bytes"] + largest + made["max_unpacked_bytes"] + waiting_logs_bytes(cap)
    taken += made["max_connections"] * CONNECTION_BYTES + made["cleaner_dedupe_buffer_bytes"] + made["max_client_memory_bytes"]
    assert made["group_max_metadata_bytes"] <= made["max_client_memory_bytes"], "what members say is part of it"
    assert taken <= (cap - FIXED_BYTES) * 15 // 16


def test_the_smallest_server_takes_usual_requests() -> None:
    made = budgets(max_memory_bytes=LEAST_MEMORY_BYTES)
    assert made["max_request_bytes"] >= 8 * MIB
    assert made["max_broker_in_flight_bytes"] // 4 > MIB, "a connection's share holds a batch of the largest default size"
    assert made["max_connections"] >= 64


def test_what_is_set_by_hand_stays() -> None:
    made = budgets(max_memory_bytes=512 * MIB, max_connections=500, cleaner_dedupe_buffer_bytes=2 * MIB)
    assert (made["max_connections"], made["cleaner_dedupe_buffer_bytes"]) == (500, 2 * MIB)


def test_budgets_by_hand_that_do_not_fit_are_refused_with_all_that_is_taken() -> None:
    with pytest.raises(InvalidConfigError, match="raise it, or lower a budget that is set") as raised:
        config(max_memory_bytes=256 * MIB, max_broker_in_flight_bytes=100 * MIB)
    assert f"max_broker_in_flight_bytes, twice: {200 * MIB}" in raised.value.message
    assert f"leaves {256 * MIB - FIXED_BYTES} for budgets" in raised.value.message


def test_keys_of_a_compaction_count_only_where_there_is_one() -> None:
    keys = {"max_memory_bytes": 256 * MIB, "cleaner_dedupe_buffer_bytes": 100 * MIB}
    with pytest.raises(InvalidConfigError, match=f"cleaner_dedupe_buffer_bytes: {100 * MIB}"):
        config(**keys)
    config(**keys, cleaner_enable=False)


def test_too_little_is_refused_with_what_is_needed() -> None:
    with pytest.raises(InvalidConfigError, match=f"max_memory_bytes: {MIB} is not in {LEAST_MEMORY_BYTES}"):
        read_settings(None, {"TRIOLOG_MAX_MEMORY_BYTES": str(MIB)}, {})
    with pytest.raises(InvalidConfigError, match="a server needs"):
        config(max_memory_bytes=MIB)
