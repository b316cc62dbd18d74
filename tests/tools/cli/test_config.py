from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import call

FILE = """node_id = 7
max_connections = 50
[topic_defaults]
"retention.ms" = -1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text(FILE)
    return path


def shown(*arguments: object, **variables: str) -> dict[str, Any]:
    result = call("config", "show", "--json", *arguments, env=variables)
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_each_key_has_its_value_and_its_source(file: Path) -> None:
    keys = shown("-c", file, TRIOLOG_MAX_CONNECTIONS="60", TRIOLOG_DURABILITY="os")
    assert keys["node_id"] == {"value": "7", "source": str(file)}
    assert keys["max_connections"] == {"value": "60", "source": "TRIOLOG_MAX_CONNECTIONS"}
    assert keys["durability"] == {"value": "os", "source": "TRIOLOG_DURABILITY"}
    assert keys["topic_defaults retention.ms"] == {"value": "-1", "source": str(file)}
    assert keys["data_dirs"] == {"value": "triolog-data", "source": "default"}
    assert keys["metrics"] == {"value": "not set", "source": "default"}
    assert keys["topic_defaults segment.bytes"]["source"] == "default"


def test_keys_can_be_chosen(file: Path) -> None:
    assert shown("node_id", "-c", file).keys() == {"node_id"}
    assert shown("--changed", "-c", file).keys() == {"node_id", "max_connections", "topic_defaults retention.ms"}
    lines = [line.split() for line in call("config", "show", "--changed", "-c", file).stdout.splitlines()]
    assert ["node_id", "7", str(file)] in lines


def test_a_wrong_file_or_key_is_refused(file: Path) -> None:
    assert "Did you mean max_connections?" in call("config", "show", "max_conections").stderr
    file.write_text("max_conections = 5")
    result = call("config", "show", "-c", file)
    assert (result.exit_code, f"{file}: unknown key 'max_conections'" in result.stderr) == (2, True)
