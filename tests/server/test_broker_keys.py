"""The table of the server's keys and the configuration that they fill."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from triolog.server.broker_config import BrokerConfig
from triolog.server.broker_keys import BROKER_KEYS


def test_every_key_but_durability_is_a_field_of_the_configuration() -> None:
    fields = {field.name for field in attrs.fields(BrokerConfig)}
    assert set(BROKER_KEYS) - fields == {"durability"}


@pytest.mark.parametrize(
    "key",
    [key for key in BROKER_KEYS.values() if key.type == "int" and key.name != "node_id"],
    ids=lambda key: key.name,
)
def test_the_default_that_is_printed_is_the_one_in_force(key: Any) -> None:
    assert key.read(key.default) == getattr(BrokerConfig(data_dirs=("x",)), key.name)
