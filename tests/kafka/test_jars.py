from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka_jars import KafkaCalls, KafkaUnavailableError, class_path, unavailable


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaUnavailableError, match=r"java, javac, mvn not found. Install a JDK \(17 or newer\) and Maven"):
        class_path()


def test_a_user_without_it_sees_a_skip_and_continuous_integration_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0", "false"):
        monkeypatch.setenv("CI", value)
        with pytest.raises(pytest.skip.Exception, match="Apache Kafka is not here: no java"):
            unavailable("no java")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="must run: no java"):
        unavailable("no java")


def test_a_tool_that_fails_says_so(kafka: KafkaCalls) -> None:
    """Kafka's tools end their process; here the next call still finds one."""
    assert kafka.call("dump", "--no-such-option").exit_code != 0
    assert "IllegalArgumentException" in kafka.call("no such command").stderr
    assert kafka.call("dump", "--help").stdout + kafka.call("dump", "--help").stderr != ""
