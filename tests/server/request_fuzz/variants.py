"""The brokers that requests are sent to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from triolog.server.faults.faults import Faults
from triolog.server.faults.requests import RequestLog
from triolog.server.listeners.kafka.fake.watched import Watch
from triolog.server.settings.listener_security import ListenerSecurity

from tests.support.logs import START_MS


def _strict() -> dict[str, Any]:
    return {}


def _watched() -> dict[str, Any]:
    """As an embedded broker is: lenient, and looked on."""
    return {"lenient": True, "watch": Watch(Faults(), RequestLog(), lambda: START_MS)}


def _secured() -> dict[str, Any]:
    """root may do everything, alice what requests allow her."""
    return {
        "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": {"root": "root", "alice": "alice"},
        "acl_enable": True,
        "super_users": ("User:root", "User:ANONYMOUS"),
        "users": ("root", "root", "alice", "alice", None),
    }


VARIANTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {"strict": _strict, "watched": _watched, "secured": _secured}
