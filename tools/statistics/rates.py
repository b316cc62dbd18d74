"""Two answers of the call `statistics` as one moment: what happened each second between, how things stand at the later one.

Pure. A counter that is below what it was (the server was restarted, a topic made again) counts from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

ROWS: Final = 20
"""Of topics, lags and APIs: the largest."""

Body = Mapping[str, Any]


def moment(before: Body, after: Body, *, topics: int = ROWS) -> dict[str, Any]:
    """Everything that `triolog top` shows, as numbers; of topics so many."""
    seconds = max(0.001, (after["time_ms"] - before["time_ms"]) / 1000)
    rate = _Rates(seconds)
    bounds = after["duration_bounds_s"]
    apis = _apis(before, after, rate, bounds)
    syncs = _difference(before["disk"]["syncs"], after["disk"]["syncs"])
    total, total_before = after["total"], before["total"]
    return {
        "time_ms": after["time_ms"],
        "interval_s": seconds,
        "connections": {name: each["connections"] for name, each in after["protocols"].items()},
        "requests_per_second": sum(each["per_second"] for each in apis),
        "errors_per_second": sum(each["errors_per_second"] for each in apis),
        "received_bytes_per_second": _protocol_rate(before, after, rate, "received_bytes"),
        "sent_bytes_per_second": _protocol_rate(before, after, rate, "sent_bytes"),
        **{f"{key}_per_second": rate(total_before[key], total[key]) for key in _TOPIC_RATES},
        "loss_window_ms": total["unsynced_ms"],
        "loss_window_records": after["unsynced_records"],
        "syncs_per_second": sum(syncs) / seconds,
        "sync_p50_ms": _quantile_ms(bounds, syncs, 0.5),
        "sync_p99_ms": _quantile_ms(bounds, syncs, 0.99),
        "failed_syncs": after["disk"]["failed_syncs"],
        "lag": after["groups"]["lag"],
        "groups": after["groups"]["count"],
        "lags": after["groups"]["lags"][:ROWS],
        "topics": _topics(before, after, rate)[:topics],
        "topic_count": after["topic_count"],
        "partitions": total["partitions"],
        "partitions_offline": total["offline"],
        "log_bytes": total["size_bytes"],
        "waiting_appends": after["waiting_appends"],
        "open_transactions": after["open_transactions"],
        "apis": sorted(apis, key=lambda each: -each["per_second"])[:ROWS],
        "directories": after["directories"],
        "wear": after.get("wear"),
        "clock": after.get("clock"),
        "mirrors": after.get("mirrors", []),
        "insecure": after.get("insecure", []),
        "compacting": after["cleaner"]["cleaning"],
    }


_TOPIC_RATES: Final = ("appended_records", "appended_bytes", "fetched_bytes")


class _Rates:
    """The growth of a counter per second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, before: float, after: float) -> float:
        return (after - before if after >= before else after) / self._seconds


def _protocol_rate(before: Body, after: Body, rate: _Rates, field: str) -> float:
    old = before["protocols"]
    return sum(rate(old.get(name, {}).get(field, 0), each[field]) for name, each in after["protocols"].items())


def _apis(before: Body, after: Body, rate: _Rates, bounds: Sequence[float]) -> list[dict[str, Any]]:
    """Rates of the APIs that were called between the two looks."""
    found = []
    for protocol, counters in after["protocols"].items():
        old_apis = before["protocols"].get(protocol, {}).get("apis", {})
        for name, api in counters["apis"].items():
            old = old_apis.get(name)
            counts = _difference(old, api)
            if not any(counts):
                continue
            errors_before = sum(old["errors"].values()) if old else 0
            found.append(
                {
                    "protocol": protocol,
                    "api": name,
                    "per_second": rate(0, sum(counts)),
                    "errors_per_second": rate(errors_before, sum(api["errors"].values())),
                    "p50_ms": _quantile_ms(bounds, counts, 0.5),
                    "p99_ms": _quantile_ms(bounds, counts, 0.99),
                }
            )
    return found


def _topics(before: Body, after: Body, rate: _Rates) -> list[dict[str, Any]]:
    """The busiest first, then the largest."""
    old_topics = {each["topic"]: each for each in before["topics"]}
    found = []
    for each in after["topics"]:
        old = old_topics.get(each["topic"], dict.fromkeys(_TOPIC_RATES, 0))
        rates = {f"{key}_per_second": rate(old[key], each[key]) for key in _TOPIC_RATES}
        kept = {key: each[key] for key in ("topic", "partitions", "offline", "records", "size_bytes")}
        found.append({**kept, **rates, "loss_window_ms": each["unsynced_ms"]})

    def busy(topic: dict[str, Any]) -> tuple[float, int]:
        return topic["appended_bytes_per_second"] + topic["fetched_bytes_per_second"], topic["size_bytes"]

    return sorted(found, key=busy, reverse=True)


# ---- histograms --------------------------------------------------------------------------------------------------------------


def _difference(before: Body | None, after: Body) -> list[int]:
    """Return the growth of the count of each class."""
    if before is None or before["count"] > after["count"]:
        return list(after["counts"])
    return [new - old for old, new in zip(before["counts"], after["counts"], strict=True)]


def _quantile_ms(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The duration that this share of them did not pass, as exact as the classes are; None when there were none. What is above
    the last bound counts as that."""
    wanted = sum(counts) * share
    if not wanted:
        return None
    below, low = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return 1000 * (low + (bound - low) * (wanted - below) / count)
        below, low = below + count, bound
    return 1000 * bounds[-1]
