"""What docs/kafka-compatibility.md says of versions and limits is what is advertised and enforced."""

from __future__ import annotations

import re
from pathlib import Path

from triolog.protocol import limits
from triolog.protocol.kafka.apis import APIS
from triolog.server.listeners.connections import session as sessions
from triolog.server.listeners.connections import transport
from triolog.server.listeners.kafka import fetch, fetch_sessions, session

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "kafka-compatibility.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|", re.MULTILINE)


def test_every_api_on_the_page_is_served_in_these_versions() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) >= 8
    for key, name, lowest, highest in rows:
        api = APIS[int(key)]
        assert (api.name, api.lowest, api.highest) == (name, int(lowest), int(highest))


def test_the_limits_on_the_page_are_the_ones_that_hold() -> None:
    assert f"more than {limits.MAX_REQUEST_BYTES // limits.MIB} MiB" in PAGE
    assert f"once {transport.MAX_UNSENT_BYTES // limits.MIB} MiB of answers wait" in PAGE
    assert f"nothing for {transport.SEND_TIMEOUT_S:.0f} s" in PAGE
    assert f"up to {session.MAX_PRODUCES_IN_FLIGHT} wait" in PAGE
    assert f"for {sessions.IDLE_TIMEOUT_S / 60:.0f} minutes" in PAGE
    assert f"| {fetch.MAX_FETCH_BYTES // limits.MIB} MiB |" in PAGE
    assert f"| {limits.MAX_DECOMPRESSED_BYTES // limits.MIB} MiB |" in PAGE
    assert f"| {limits.MAX_RECORDS_PER_BATCH:,}; twice as many |" in PAGE
    assert f"| headers of a record | {limits.MAX_HEADERS_PER_RECORD:,} |" in PAGE
    assert f"| {fetch_sessions.MAX_SESSIONS:,} |" in PAGE
    assert f"| {fetch_sessions.MAX_SESSION_PARTITIONS:,}, {fetch_sessions.MAX_PARTITIONS:,} |" in PAGE
