"""What goes wrong in a run, and when: all of it from the seed, but for the moment to the microsecond."""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

GROUP_APIS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat")
TRANSACTION_APIS: Final = ("InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn")
BUSY: Final = ("Produce", "Fetch", "Metadata", "ListOffsets", *GROUP_APIS, *TRANSACTION_APIS)


@attrs.frozen(kw_only=True)
class Pace:
    """Seconds between troubles, from and to. None: there are none."""

    server: tuple[float, float] | None
    others: tuple[float, float] | None
    first_s: float = 8.0
    """Nothing goes wrong before."""
    with_control: bool = True
    """Whether requests and the disk go wrong, too: with a server that has its door for tests open."""


HISTORIES: Final = Pace(server=(10.0, 40.0), others=(3.0, 12.0))
SOAK: Final = Pace(server=(600.0, 1200.0), others=(60.0, 180.0), first_s=300.0, with_control=False)


def a_wire_fault(rng: random.Random) -> dict[str, Any]:
    """A rule for the requests of Kafka clients, all of which they have to live with."""
    rule: dict[str, Any] = {"probability": rng.choice((0.05, 0.2, 0.5)), "seed": rng.randrange(1 << 30)}
    rule["times"] = rng.randint(1, 12)
    match rng.choice(("error", "error", "disconnect", "disconnect", "delay", "truncate", "throttle")):
        case "error":
            api = rng.choice(("Produce", "Fetch", *GROUP_APIS, *TRANSACTION_APIS))
            rule |= {"api": api, "error": _error_of(api, rng)}
            if api in ("Produce", "OffsetCommit", "TxnOffsetCommit", "EndTxn") and rng.random() < 0.5:
                rule["applied"] = True
        case "disconnect":
            rule |= {"api": rng.choice(BUSY), "disconnect": True, "applied": rng.random() < 0.5}
        case "delay":
            rule |= {"api": rng.choice(BUSY), "delay_ms": rng.randint(20, 1500)}
        case "truncate":
            rule |= {"api": rng.choice(BUSY), "truncate_to": rng.randint(0, 60), "applied": rng.random() < 0.5}
        case "throttle":
            rule |= {"api": rng.choice(("Produce", "Fetch")), "throttle_ms": rng.randint(50, 800)}
    return rule


def _error_of(api: str, rng: random.Random) -> str:
    if api in ("Produce", "Fetch"):
        return rng.choice(("NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"))
    if api in ("Heartbeat", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"):
        return rng.choice(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
    return rng.choice(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"))


def a_disk_fault(rng: random.Random) -> tuple[dict[str, Any], bool]:
    """A rule for the device, and whether logs stay offline after it, until a restart."""
    path = rng.choice(("*plain-*", "*copied-*", "*__consumer_offsets-*", "*__transaction_state-*", "*"))
    rule: dict[str, Any] = {"path": f"{path}/*.log", "probability": rng.choice((0.1, 0.5)), "seed": rng.randrange(1 << 30)}
    match rng.choice(("delay", "delay", "full", "write", "sync", "read")):
        case "delay":
            slow = {"operation": rng.choice(("write", "sync")), "delay_ms": rng.randint(20, 800)}
            return {**rule, "effect": "delay", **slow}, False
        case "full":
            return {**rule, "effect": "full", "times": rng.randint(1, 20)}, True
        case operation:
            return {**rule, "effect": "error", "operation": operation, "times": rng.randint(1, 5)}, True


def a_time(rng: random.Random, between: tuple[float, float] | None) -> float:
    return float("inf") if between is None else rng.uniform(*between)
