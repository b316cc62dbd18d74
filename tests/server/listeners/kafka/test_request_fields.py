"""Every field of a request is read by the code that serves it, or docs/kafka-compatibility.md says why it is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.kafka.apis import APIS, ApiKey

from tests.support.read_fields import Source, analyze

ROOT: Final = Path(__file__).resolve().parents[4]
HANDLERS: Final = ROOT / "server" / "listeners" / "kafka"
SECTION: Final = "## Fields of requests that are not read"
ROW: Final = re.compile(r"^\| (\w+) \| (`.*?) \| (\S.*?) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def source() -> Source:
    return analyze(HANDLERS)


def documented() -> Iterator[tuple[str, str]]:
    """(API, field) of each row."""
    page = (ROOT / "docs" / "kafka-compatibility.md").read_text(encoding="utf-8")
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    for api, fields, _ in ROW.findall(section):
        for field in fields.split(", "):
            yield api, field.strip("`")


def test_every_field_of_every_request_is_read_or_has_a_reason(source: Source) -> None:
    unread = {(api.name, field) for api in APIS.values() for field in source.unread(api)}
    told = list(documented())
    assert len(told) == len(set(told))
    assert unread - set(told) == set(), "write the code that reads it, or the reason why none does"
    assert set(told) - unread == set(), "it is read"


@pytest.mark.parametrize(
    ("key", "module", "line", "field"),
    [
        (
            ApiKey.WRITE_TXN_MARKERS,
            "transactions",
            "transaction_version=marker.transaction_version,",
            "WriteTxnMarkersWritableTxnMarker.transaction_version",
        ),
        (ApiKey.OFFSET_COMMIT, "offsets", ", body.retention_time_ms", "OffsetCommitRequest.retention_time_ms"),
        (ApiKey.FETCH, "fetch", ", body.replica_state.replica_id", "FetchReplicaState.replica_id"),
    ],
)
def test_field_that_is_read_no_more_is_reported(tmp_path: Path, key: ApiKey, module: str, line: str, field: str) -> None:
    for path in HANDLERS.glob("*.py"):
        text = path.read_text()
        if path.stem == module:
            assert line in text
            text = text.replace(line, "")
        (tmp_path / path.name).write_text(text)
    assert field in set(analyze(tmp_path).unread(APIS[key]))
