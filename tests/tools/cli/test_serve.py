from __future__ import annotations

import contextlib
import gc
import json
from pathlib import Path

from triolog.server.config.broker_config import DEFAULT_NATIVE
from triolog.server.listeners.opening import Addresses
from triolog.tools.cli import serve

from .conftest import call


def test_garbage_is_looked_for_seldom_while_logs_are_opened_and_as_always_once_they_are_served(tmp_path: Path) -> None:
    usual, ready = gc.get_threshold(), tmp_path / "ready"
    with serve.seldom_collecting():
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 50 * usual[0]  # 2,000 from Python 3.13 on, 700 before
        serve._started(str(ready), Addresses(DEFAULT_NATIVE, None))
        assert gc.get_threshold() == usual
    assert gc.get_threshold() == usual
    assert "native" in json.loads(ready.read_text(encoding="utf-8"))
    with contextlib.suppress(OSError), serve.seldom_collecting():
        raise OSError("a start that fails")
    assert gc.get_threshold() == usual


def test_a_configuration_file_without_data_directories_and_kafkas_options_are_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("node_id = 5\n")
    assert "names no data_dirs. Add them, or give --data-dir DIR" in call("serve", "-c", file).stderr
    assert "Did you mean --kafka PORT (for Kafka clients)" in call("serve", "--port", "9092").stderr
    assert "--kafka HOST:PORT and --native HOST:PORT" in call("serve", "--host", "0.0.0.0").stderr
    assert "other machines can reach" in call("serve", "-d", tmp_path / "data", "--kafka", "0.0.0.0").stderr
