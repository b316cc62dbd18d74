"""The addresses of a cluster: the form of a master or of a Spark Connect server, and whether something answers there.

A check takes at most `TIMEOUT_S`. Spark itself tries an unreachable address for a minute or more, and its error does not name
it. No message repeats the parameters of a Spark Connect server, which may hold a token.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from typing import Final

from ...protocol.errors import TriologError

TIMEOUT_S: Final = 8.0
MASTERS: Final = "local, local[N], local[*], local[N,FAILURES], spark://HOST:PORT, yarn, k8s://..."
REMOTE_PORT: Final = 15002
"""The port of a Spark Connect server whose address names none."""

_MASTER: Final = re.compile(
    r"local|local\[(?:\*|\d+)(?:,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+|spark://(?P<places>[^\s,/]+:\d+(?:,[^\s,/]+:\d+)*)"
)
_REMOTE: Final = re.compile(r"sc://(?P<host>\[[^\]\s]+\]|[^\s:/;]+)(?::(?P<port>\d+))?(?:/(?:;\S*)?)?")


class MasterError(TriologError):
    """A master or a Spark Connect server of an unknown form, or that cannot be reached."""


def check_master(master: str, timeout_s: float = TIMEOUT_S) -> None:
    """MasterError unless Spark knows a master of this form and, with `spark://`, one of its addresses accepts connections."""
    found = _MASTER.fullmatch(master)
    if found is None:
        raise MasterError(f"invalid master {master!r}: use {MASTERS}")
    if found["places"] is not None:
        _connect(f"the Spark master {master}", found["places"].split(","), timeout_s)


def check_remote(remote: str, timeout_s: float = TIMEOUT_S) -> None:
    """MasterError unless a Spark Connect server of this address accepts connections."""
    found = _REMOTE.fullmatch(remote)
    if found is None:
        raise MasterError(f"invalid Spark Connect server {remote.partition(';')[0]!r}: use sc://HOST:PORT")
    place = f"{found['host']}:{found['port'] or REMOTE_PORT}"
    _connect(f"the Spark Connect server sc://{place}", [place], timeout_s)


def _connect(what: str, places: Sequence[str], timeout_s: float) -> None:
    give_up_at = time.monotonic() + timeout_s
    why = ""
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), max(0.1, (give_up_at - time.monotonic()) / left)).close()
        except (OSError, OverflowError) as exc:
            why = getattr(exc, "strerror", None) or str(exc)
        else:
            return
    raise MasterError(f"cannot reach {what}: {why}. Start it, or correct the address")
