"""The checks of a running server, by its native port or its Kafka port. Each wait has a limit."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import Any, Final

import click
import trio

from ....protocol.errors import RemoteProtocolError, RequestError
from ....protocol.kafka.apis import APIS, ApiKey
from ....protocol.kafka.messages.topics import MetadataRequest
from ....protocol.schema import codec
from ...client.admin import Admin
from ...client.connection import Client
from ..terminal.remote import ServerAddress, call_server
from .directory import Inspection
from .symptoms import symptom_of

RESPONSE_S: Final = 15.0
"""For everything that a native port is asked, after the connection."""
CONNECT_S: Final = 3.0
"""For a connection to an advertised address, and for each response of a Kafka port."""
MAX_ADDRESSES: Final = 20
MAX_TOPICS: Final = 100
"""Topics whose producers are asked for open transactions."""
LAG_RECORDS: Final = 10_000
MAX_METADATA_BYTES: Final = 1024 * 1024
METADATA_VERSION: Final = 1
"""The first that can ask for no topic; Kafka 4 supports it, too."""


def inspect_server(address: ServerAddress) -> Inspection:
    """Ask the native port of a server; where it is a Kafka port, ask for the addresses of its brokers."""
    inspection = Inspection(str(address))
    try:
        inspection.shape = call_server(address, _look)
        _check(inspection.shape["statistics"], inspection)
    except trio.TooSlowError:
        inspection.found("no-connection", f"{address} accepts connections and does not respond within {RESPONSE_S:.0f} s")
    except click.ClickException as exc:
        _explain(address, exc.message, inspection)
    except (LookupError, TypeError, AttributeError, ValueError) as exc:
        text = f"{address} sent statistics that this version does not know ({exc!r}). Use the doctor of its version"
        inspection.found("no-connection", text)
    for place in inspection.shape.get("hanging", ()):
        inspection.found("transaction-hangs", place)
    return inspection


async def _look(client: Client) -> dict[str, Any]:
    admin = Admin(client)
    with trio.fail_after(RESPONSE_S):
        hello = await client.hello()
        found: dict[str, Any] = {"hello": _some(hello), "statistics": await admin.statistics(), "hanging": [], "errors": []}
        for topic in found["statistics"]["topics"][:MAX_TOPICS]:
            try:
                described = await admin.describe_producers(topic["topic"], open_only=True)
            except RequestError as exc:
                found["errors"].append(str(exc))
                continue
            found["hanging"] += [
                f"{each.topic}-{each.partition}: producer {producer.producer_id}, open from offset "
                f"{producer.transaction_start_offset}"
                for each in described
                for producer in each.producers
                if producer.is_hanging
            ]
    return found


def _some(hello: Any) -> dict[str, Any]:
    return {name: getattr(hello, name) for name in ("server", "version", "node_id", "cluster_id", "sasl_mechanisms")}


def _explain(address: ServerAddress, message: str, inspection: Inspection) -> None:
    """Name the symptom of a connection that failed."""
    symptom = symptom_of(message)
    name = "no-connection" if symptom is None else symptom.name
    if message.startswith("login failed"):
        name = "login-failed"
    elif "AUTHORIZATION_FAILED" in message:
        name = "denied"
    elif name == "kafka-port":
        try:
            inspection.shape = {"advertised": advertised_addresses(address)}
        except (OSError, ValueError, RemoteProtocolError):
            name = "no-connection"
        else:
            _check_addresses(inspection)
            return
    inspection.found(name, message)


def advertised_addresses(address: ServerAddress) -> list[tuple[str, int]]:
    """Return the addresses that a Kafka port gives to clients. Raises OSError; ValueError or RemoteProtocolError for a response
    that is not Kafka's."""
    api = APIS[ApiKey.METADATA]
    header = struct.pack(">hhih", api.key, METADATA_VERSION, 1, -1)
    request = header + b"".join(
        codec.write(
            MetadataRequest(topics=[], include_cluster_authorized_operations=False, include_topic_authorized_operations=False),
            METADATA_VERSION,
            flexible=False,
        )
    )
    deadline = time.monotonic() + RESPONSE_S
    with socket.create_connection(address, CONNECT_S) as connected:
        connected.sendall(struct.pack(">i", len(request)) + request)
        size = int.from_bytes(_receive(connected, 4, deadline), signed=True)
        if not 4 < size < MAX_METADATA_BYTES:
            raise ValueError(f"a response of {size} bytes")
        data = _receive(connected, size, deadline)
    if len(data) < size:
        raise ValueError(f"a response of {size} bytes ends after {len(data)}")
    response, _ = codec.read(api.response, METADATA_VERSION, memoryview(data), 4, flexible=False)
    if not response.brokers:
        raise ValueError("a response without brokers")
    return [(broker.host, broker.port) for broker in response.brokers]


def _receive(connected: socket.socket, size: int, deadline: float) -> bytes:
    """Return so many bytes, or fewer at the end of the stream. Raises OSError, also after the deadline: a peer may send a byte
    now and then."""
    data = b""
    while len(data) < size and (some := connected.recv(size - len(data))):
        data += some
        if time.monotonic() > deadline:
            raise TimeoutError(f"no whole response within {RESPONSE_S:.0f} s")
    return data


def _check_addresses(inspection: Inspection) -> None:
    for host, port in itertools.islice(inspection.shape["advertised"], MAX_ADDRESSES):
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except (OSError, ValueError, OverflowError) as exc:  # a name or a port that no address can have
            why = getattr(exc, "strerror", None) or exc
            text = f"{inspection.path} sends clients to {host}:{port}, which this machine cannot reach: {why}"
            inspection.found("advertised-wrong", text)


def _check(now: dict[str, Any], inspection: Inspection) -> None:
    """Read the symptoms from statistics. A server of an earlier version has fewer of them."""
    found, total, clock = inspection.found, now["total"], now.get("clock") or {"is_trusted": True}
    for each in [*now["directories"], {"path": "all logs", **now["log_bound"]}]:
        if each.get("error") is not None:
            found("out-of-service", f"log directory {each['path']}: {each['error']}")
        if each["is_refusing"]:
            found("disk-full", f"{each['path']}: appends are refused")
        if each["given_up_segments"]:
            found("segments-dropped", f"{each['path']}: {each['given_up_segments']:,} segments")
    counts = {
        "out-of-service": (total["offline"], "partitions offline"),
        "gap": (total["open_gaps"], "gaps that are not accepted"),
        "damaged": (now["scrub"]["damages"], "damages found by scrubbing"),
        "retention": (now["retention"]["taken_segments"], "segments deleted by retention"),
        "bug": (sum(each["bugs"] for each in now["protocols"].values()), "requests ended with an unexpected error"),
    }
    security = now.get("security", {})
    for name, field in (("login-failed", "failed_logins"), ("tls-failed", "failed_handshakes"), ("denied", "denied")):
        counts[name] = (security.get(field, 0), f"{field} since the start")
    if now["disk"]["failed_syncs"]:
        found("out-of-service", f"{now['disk']['failed_syncs']:,} syncs failed")
    for name, (count, words) in counts.items():
        if count:
            found(name, f"{count:,} {words}")
    for lag in now["groups"]["lags"]:
        if lag["lag"] >= LAG_RECORDS:
            found("lag", f"group {lag['group']}, {lag['topic']}-{lag['partition']}: {lag['lag']:,} records")
    if not clock["is_trusted"]:
        found("clock-jumped" if clock["is_plausible"] else "clock-implausible", f"statistics: {clock}")
