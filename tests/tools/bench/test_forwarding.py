"""How forwarding is watched from outside. The rows themselves run in `test_kafka.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.tools.bench.kafka.forwarder import missing, running, watch
from triolog.tools.bench.measuring.child import LoadFailedError

from tests.support.forwarding import ANY_PORT

SLEEPS = (sys.executable, "-c", "import signal; signal.pause()")


def test_records_that_are_there_are_found_with_what_the_process_took(tmp_path: Path) -> None:
    with BlockingBroker(kafka=ANY_PORT) as upstream, running(SLEEPS, tmp_path / "log") as process:
        upstream.create_topic("t")
        upstream.append("t", [b"value"] * 300)
        done = watch(process, upstream.bootstrap_servers, "t", 300)
    assert done.mb_s > 0
    assert done.peak_mib > 1


def test_a_process_that_ends_before_its_records_are_there_is_a_failure_with_what_it_wrote(tmp_path: Path) -> None:
    ends = (sys.executable, "-c", "import sys; sys.exit('no such upstream')")
    with BlockingBroker(kafka=ANY_PORT) as upstream:
        with pytest.raises(LoadFailedError, match=r"to t has ended with 1: no such upstream"):
            with running(ends, tmp_path / "log") as process:
                watch(process, upstream.bootstrap_servers, "t", 1)


def test_without_librdkafka_rows_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "confluent_kafka" else find(name))
    assert "pip install '.[forward]'" in missing()
