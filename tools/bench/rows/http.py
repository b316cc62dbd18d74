"""Streams of lines over HTTP into one partition with `fsync`."""

from __future__ import annotations

import http.client
import time
from functools import partial
from typing import Final

from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.report import Line, RowResult, at_least
from ..measuring.server import cpu_s, serving
from ..measuring.wire import Wire

STREAM_BYTES: Final = 100_000_000
SIZES: Final = (100, 200, 1000)
PIECE_BYTES: Final = 1_000_000
TARGET: Final = at_least(20, "MB/s")
TOPIC: Final = "lines"


def http_lines(bench: Bench) -> RowResult:
    """Send a stream of lines of each size, and wait for the response."""
    bench = bench.with_rounds(3)
    size = bench.scale.count(STREAM_BYTES, least=PIECE_BYTES)
    with bench.workspace() as directory, serving(directory, durability="fsync", settings={"http": "127.0.0.1:0"}) as server:
        with Wire(server.address) as wire:
            wire.create_topic(TOPIC, retention_ms="-1")

        host, _, port = server.addresses["http"].rpartition(":")

        def rate(line_bytes: int) -> tuple[float, float]:
            begun_s = cpu_s(server.pid)
            sent = run_load(send_lines, address=(host, int(port)), line_bytes=line_bytes, stream_bytes=size)
            return float(sent["rate"]), (cpu_s(server.pid) - begun_s) / sent["records"] * 1e6

        samples = bench.interleave({str(each): partial(rate, each) for each in SIZES})
    lines = []
    for each in SIZES:
        rates, times = zip(*samples[str(each)], strict=True)
        lines.append(Line(f"lines of {each} B", "MB/s", rates, TARGET))
        lines.append(Line(f"processor time of the server for each line of {each} B", "us", times))
    return RowResult("HTTP, a stream of lines of JSON, fsync", lines)


def send_lines(*, address: tuple[str, int], line_bytes: int, stream_bytes: int) -> dict[str, float]:
    """Send one stream. Raises LoadFailedError if not every line is acknowledged."""
    line = b'{"device":"boiler-7","t":21.5,"note":"%b"}\n'
    line = line % (b"x" * (line_bytes - len(line) + 2))
    piece = line * (PIECE_BYTES // len(line))
    count = max(1, stream_bytes // len(piece))
    connection = http.client.HTTPConnection(*address)
    headers = {"content-type": "application/x-ndjson", "content-length": str(count * len(piece))}
    begun_s = time.perf_counter()
    connection.request("POST", f"/topics/{TOPIC}", (piece for _ in range(count)), headers)
    response = connection.getresponse()
    body = response.read()
    seconds = time.perf_counter() - begun_s
    connection.close()
    records = count * (len(piece) // len(line))
    if response.status != http.client.OK or f'"records": {records},'.encode() not in body:
        raise LoadFailedError(f"the stream of {records} lines got {response.status}: {body[:200].decode()}")
    return {"rate": count * len(piece) / seconds / 1e6, "records": records}
