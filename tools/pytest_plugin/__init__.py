"""The pytest plug-in `triolog`: brokers as fixtures. Loaded by every pytest run of an environment that has triolog, so this
module imports nothing of the server, nor trio: fixtures do, when a test wants one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ...server.embedded import BlockingBroker

MARKER = "triolog"
FIXTURES = ("triolog_broker", "triolog_broker_session")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics=..., records=..., config=..., path=...): options of the test's broker, as triolog.open accepts them",
    )


@pytest.fixture
def triolog_broker(request: pytest.FixtureRequest) -> Iterator[BlockingBroker]:
    """A broker of the test's own, in memory, with a Kafka listener: `triolog_broker.bootstrap_servers`. The marker `triolog`
    has its options, such as topics and records; an unknown option is an error of the test. The broker runs in a thread, so it
    goes with any kind of test."""
    with _broker(_settings(request.node)) as broker:
        yield broker


@pytest.fixture(scope="session")
def triolog_broker_session() -> Iterator[BlockingBroker]:
    """Serve a broker for all tests of a process (with xdist: of a worker). Tests share its data; `reset()` clears it."""
    with _broker({}) as broker:
        yield broker


def _settings(item: Any) -> dict[str, Any]:
    """Return the options of all markers; the nearest marker wins. Raises UsageError."""
    settings: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        if mark.args:
            raise pytest.UsageError(f"the marker {MARKER} accepts only keywords, such as topics=['orders']")
        settings |= mark.kwargs
    return settings


def _broker(settings: dict[str, Any]) -> BlockingBroker:
    """Raises UsageError for an unknown option."""
    from ...server.embedded import MEMORY, blocking

    try:
        return blocking.open(**{"path": MEMORY, "kafka": "127.0.0.1:0", "for_tests": True, **settings})
    except TypeError as exc:
        raise pytest.UsageError(f"the marker {MARKER}: {exc}") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """With a failed test come its broker's last requests and state."""
    report: Any = yield
    if report.failed and call.when == "call":
        for name in FIXTURES:
            broker = getattr(item, "funcargs", {}).get(name)
            if broker is not None:
                report.sections.append((f"{name}: state and last requests", _told(broker)))
    return report  # type: ignore[no-any-return]


def _told(broker: BlockingBroker) -> str:
    try:
        from .report import report_of

        return report_of(broker)
    except Exception as exc:
        return f"the broker does not respond: {exc!r}"
