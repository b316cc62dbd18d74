"""The options of an embedded broker, written once for its three faces and the marker of the pytest plug-in.

Invariant: `OpenOptions` has the keywords of `opening.open` with their types, as a test compares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

if TYPE_CHECKING:
    from ..broker import PlainRecord
    from ..config.broker_config import Address
    from ..fake.clock import MovedClock
    from ..fake.life import Topics
    from ..fake.views.log_view import Text
    from ..system.clock import NowMs

F = TypeVar("F", bound=Callable[..., Any])


class OpenOptions(TypedDict, total=False):
    """The options of `open`. None stands for the default, unless the option says otherwise."""

    settings: Mapping[str, Any] | None
    """Keys of the server, as docs/reference/configuration.md lists them, with the values of a TOML file, and the table
    `topic_defaults`. The other options take precedence."""

    native: Address | str | None
    """Address to listen on for native clients, such as `"127.0.0.1:0"` (0: the system chooses the port). By default none."""

    kafka: Address | str | None
    """Address to listen on for Kafka clients, such as `"127.0.0.1:9092"`. By default none."""

    metrics: Address | str | None
    """Address to serve /metrics, /livez and /readyz on over HTTP (extra `metrics`). By default none."""

    durability: str | None
    """`fsync` or `os`. By default `fsync` for a directory of yours, and `os` for a temporary one."""

    config: Mapping[str, str] | None
    """Kafka's topic keys, as defaults of all topics."""

    for_tests: bool | None
    """Whether the other settings are those of tests, where groups do not wait for members and `lenient` is on, or those of
    `triolog serve`. By default those of `serve` for a directory of yours, and those of tests for a temporary one."""

    lenient: bool | None
    """For tests: accept requests that Kafka refuses, such as topics with more replicas than nodes."""

    users: Mapping[str, str] | None
    """For tests: passwords by user name. Kafka clients must then log in."""

    oauth: bool
    """For tests: whether Kafka clients log in by OAUTHBEARER, with tokens that the broker issues (`broker.tokens`; extra
    `oauth`). By default False."""

    security: Mapping[str, Any] | None
    """For tests: keys of docs/operations/security.md."""

    now_ms: NowMs
    """For tests: returns the time at which the broker's clock begins, in ms since the epoch. By default the system's clock."""

    clock: MovedClock | None
    """For tests: the broker's clock. By default a clock of its own that begins at `now_ms`."""

    topics: Topics
    """For tests: names of topics, or names with numbers of partitions. Missing topics are created."""

    records: Mapping[str, Sequence[PlainRecord | Text]] | None
    """For tests: records to append to partition 0 of each topic that is created: values, or
    `(timestamp_ms or None, key, value, headers)`."""

    nodes: int
    """For tests: number of Kafka listeners that look like a cluster. By default 1."""

    emulate: str | None
    """For tests: advertise the API versions of that version of Kafka, such as "3.4"."""

    telemetry: bool
    """For tests: request metrics from clients, as subscriptions say. By default False."""


class JoinOptions(TypedDict, total=False):
    """The options of `open_or_join`, which have the meaning of those of `open`. The process that owns the directory uses them.
    Give Kafka clients a fixed port: each owner listens on it."""

    settings: Mapping[str, Any] | None
    kafka: Address | str | None
    metrics: Address | str | None
    durability: str | None
    config: Mapping[str, str] | None
    topics: Topics


def check_options(options: Mapping[str, object], function: str = "open", kind: type = OpenOptions) -> None:
    """Raises TypeError for an unknown option, with the nearest one."""
    for name in options:
        if name not in kind.__annotations__:
            from ..fake.faults.rules import hint

            raise TypeError(f"{function}() has no option {name!r}{hint(name, kind.__annotations__)}")


def listening(options: OpenOptions) -> OpenOptions:
    """Return the options with the default of the former names `open_broker` and `BlockingBroker`: a port for native clients."""
    if "native" in options or "native" in (options.get("settings") or {}):
        return options
    return {**options, "native": "127.0.0.1:0"}


def shows_options(opened: Callable[..., object]) -> Callable[[F], F]:
    """Show the parameters of `opened` in help() and notebooks, which do not look into `Unpack`."""

    def decorate(face: F) -> F:
        own, shown = inspect.signature(face), inspect.signature(opened)
        face.__signature__ = own.replace(parameters=[*shown.parameters.values()])  # type: ignore[attr-defined]
        return face

    return decorate
