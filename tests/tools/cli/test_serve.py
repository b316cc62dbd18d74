from __future__ import annotations

import contextlib
import gc
import json
import resource
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(("soft", "raised"), [(256, serve.OPEN_MAX), (20_000, 20_000)])
def test_an_unlimited_hard_limit_raises_the_soft_one_as_far_as_macos_accepts(
    soft: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = (soft, resource.RLIM_INFINITY)

    def set_as_on_macos(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[0] == resource.RLIM_INFINITY:
            raise ValueError("invalid argument")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", set_as_on_macos)
    serve._raise_descriptor_limit()
    assert limits == (raised, resource.RLIM_INFINITY)


def test_a_configuration_file_without_data_directories_and_kafkas_options_are_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("node_id = 5\n")
    assert "names no data_dirs. Add them, or give --data-dir DIR" in call("serve", "-c", file).stderr
    assert "Did you mean --kafka PORT (for Kafka clients)" in call("serve", "--port", "9092").stderr
    assert "--kafka HOST:PORT and --native HOST:PORT" in call("serve", "--host", "0.0.0.0").stderr
    assert "other machines can reach" in call("serve", "-d", tmp_path / "data", "--kafka", "0.0.0.0").stderr
