"""A link from files to a server: records, positions, dead letters, and what a restart of either side makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import triolog.blocking
from triolog.protocol.types import Record
from triolog.server.embedded import BlockingBroker
from triolog.tools.forward.errors import SettingsError
from triolog.tools.forward.memory import Wishes
from triolog.tools.ingest.file_ingest import FileIngest
from triolog.tools.ingest.file_store import FileStore
from triolog.tools.ingest.settings import INGEST, IngestSettings

from tests.support.forwarding import Running, until

ANY_PORT: Final = "127.0.0.1:0"
TOPIC: Final = "lines"
DEAD: Final = "file-dead-letters"
POSITIONS: Final = "triolog-ingest.files.positions"


def link_to(server: BlockingBroker, *files: Path, **keys: Any) -> FileIngest:
    assert server.native is not None
    table = {"name": "files", "topic": TOPIC, "files": [str(each) for each in files], "poll_ms": 5, **keys}
    where = (server.native.host, server.native.port)
    return FileIngest(INGEST.read_link("the test", table), lambda link: FileStore(link, where, None, None), Wishes())


@pytest.fixture
def server() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(native=ANY_PORT) as server:
        yield server


def records(server: BlockingBroker, topic: str = TOPIC) -> list[Record]:
    return server.log(topic).fetch() if topic in server.topics() else []


def values(server: BlockingBroker, topic: str = TOPIC) -> list[bytes | None]:
    return [record.value for record in records(server, topic)]


def headers(record: Record) -> Mapping[str, bytes | None]:
    return dict(record.headers)


def soon(condition: Callable[[], bool]) -> None:
    until(condition, "the link has got so far")


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def test_lines_are_records_with_their_place_and_a_restart_continues(server: BlockingBroker, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"1\n2\n")
    with Running(link_to(server, path)) as link:
        soon(lambda: len(records(server)) == 2)
        append(path, b"3\n")
        soon(lambda: len(records(server)) == 3)
        assert link.link.progress.snapshot()["delivery"] == "exactly-once"
        soon(lambda: link.link.progress.snapshot()["records"] == 3)
    assert [headers(each)["file.offset"] for each in records(server)] == [b"0", b"2", b"4"]
    assert {(each.key, headers(each)["file.path"]) for each in records(server)} == {(str(path).encode(),) * 2}
    append(path, b"4\n")
    with Running(link_to(server, path)):
        soon(lambda: len(records(server)) == 4)
    assert values(server) == [b"1", b"2", b"3", b"4"]


def test_bad_lines_are_dead_letters_and_the_file_continues(server: BlockingBroker, tmp_path: Path) -> None:
    """Above the limit of the link, and above that of the topic."""
    path = tmp_path / "a.log"
    server.create_topic(TOPIC, config={"max.message.bytes": "1000"})
    append(path, b"1\n" + b"x" * 50_000 + b"\n2\n" + b"y" * 2000 + b"\n\0\xff\n3\n")
    with Running(link_to(server, path, max_line_bytes=3000)) as link:
        soon(lambda: len(records(server)) == 4)
        soon(lambda: link.link.progress.snapshot()["dead_letter_records"] == 2)
    assert values(server) == [b"1", b"2", b"\0\xff", b"3"]
    long, refused = sorted(records(server, DEAD), key=lambda record: record.value or b"")
    assert (long.value, headers(long)["file.line.bytes"], headers(long)["file.offset"]) == (b"x" * 3000, b"50000", b"2")
    assert b"above max_line_bytes=3000" in (headers(long)["triolog.error"] or b"")
    assert (refused.value, b"max.message.bytes" in (headers(refused)["triolog.error"] or b"")) == (b"y" * 2000, True)


def test_a_dead_letter_above_the_limit_of_its_topic_is_cut_until_it_fits(server: BlockingBroker, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for topic in (TOPIC, DEAD):
        server.create_topic(topic, config={"max.message.bytes": "2500"})
    append(path, b"x" * 3000 + b"\n1\n")
    with Running(link_to(server, path)):
        soon(lambda: len(records(server)) == 1)
    [dead] = records(server, DEAD)
    assert (dead.value, headers(dead)["file.line.bytes"]) == (b"x" * 1500, b"3000")


def test_a_server_that_goes_away_loses_and_doubles_nothing(server: BlockingBroker, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with Running(link_to(server, path)):
        for number in range(30):
            append(path, b"%d\n" % number)
            if number % 10 == 5:
                server.crash()
                server.restart()
        soon(lambda: len(records(server)) >= 30)
    assert values(server) == [b"%d" % number for number in range(30)]


def test_a_second_process_with_the_link_fences_the_first(server: BlockingBroker, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"1\n")
    with Running(link_to(server, path)) as first:
        soon(lambda: len(records(server)) == 1)
        with Running(link_to(server, path)):
            lines = [b"1"]
            while first.link.error is None:  # it stores lines until the second one has started, and hears of that with a line
                lines.append(b"%d" % (len(lines) + 1))
                append(path, lines[-1] + b"\n")
                soon(lambda: len(records(server)) == len(lines))
    assert "another process has taken link files over" in str(first.link.error)
    assert values(server) == lines


def test_a_topic_of_positions_that_is_not_compacted_stops_the_link(server: BlockingBroker, tmp_path: Path) -> None:
    server.create_topic(POSITIONS)
    with Running(link_to(server, tmp_path / "a")) as link:
        soon(lambda: link.link.error is not None)
    assert "cleanup.policy=delete" in str(link.link.error)


def test_a_foreign_record_among_the_positions_stops_the_link(server: BlockingBroker, tmp_path: Path) -> None:
    server.create_topic(POSITIONS, config={"cleanup.policy": "compact"})
    server.append(POSITIONS, [(None, b"key", b"no position", ())])
    with Running(link_to(server, tmp_path / "a")) as link:
        soon(lambda: link.link.error is not None)
    assert f"{POSITIONS}, offset 0: not a position" in str(link.link.error)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"files": []}, "no path"),
        ({"files": [1]}, "is not a list of paths"),
        ({"files": ["a\0b"]}, "zero bytes"),
        ({"topic": "__consumer_offsets"}, "topic of the server itself"),
        ({"dead_letter_topic": "lines"}, "must differ"),
        ({"qos": 1}, "unknown key 'qos'"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        INGEST.read_link("the test", {"name": "a", "topic": TOPIC, "files": ["a"], **table})


def test_two_links_cannot_share_the_topic_of_positions() -> None:
    links = [
        INGEST.read_link("the test", {"name": name, "topic": TOPIC, "files": ["a"], "positions_topic": "p"}) for name in "ab"
    ]
    with pytest.raises(SettingsError, match="links a and b have the same positions_topic p"):
        IngestSettings(links=tuple(links))
    with contextlib.suppress(SettingsError):
        IngestSettings(links=tuple(links[:1]))
