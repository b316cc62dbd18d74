from __future__ import annotations

import pickle
from typing import Final

import pytest
from triolog.protocol.types import Isolation
from triolog.tools.segments.segment_damage import ReadMode
from triolog.tools.spark.segments.segments_options import NAMES, SegmentOptions
from triolog.tools.spark.sink.write_options import OptionError
from triolog.tools.spark.source.bounds import Earliest, Latest
from triolog.tools.spark.source.options import Matching

from tests.tools.spark.source.test_options import READ_AS

OTHERWISE: Final = frozenset({"kafkaConsumer.pollTimeoutMs", "kafka.request.timeout.ms"})
"""Only with a server, see below."""
SHARED: Final = [row for row in READ_AS if row[0] in set(NAMES) - OTHERWISE and "latest" not in row[1] and "-1" not in row[1]]
"""Without a start at the latest offset, which a batch refuses."""


def read(**options: str) -> SegmentOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return SegmentOptions.from_options({"path": "/data"} | given)


def refused(options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        SegmentOptions.from_options(options)
    return str(caught.value)


def test_a_directory_is_all_that_is_needed() -> None:
    options = read()
    assert options.paths == ("/data",)
    assert (options.mode, options.snapshot) == (ReadMode.PERMISSIVE, "files")
    assert options.is_committed
    assert options.read.check_crcs
    assert (options.read.starting, options.read.ending) == (Earliest(), Latest())
    assert isinstance(options.read.selection, Matching)
    assert options.read.selection.matches("events")
    assert not options.read.selection.matches("__consumer_offsets")


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"path": "/data"}, ("/data",)),
        ({"path": "file:///data"}, ("/data",)),
        ({"path": "file:/data"}, ("/data",)),
        ({"paths": '["/a", "/b"]'}, ("/a", "/b")),
        ({"logDir": "/a, /b"}, ("/a", "/b")),
    ],
)
def test_directories_are_named_in_three_ways(given: dict[str, str], paths: tuple[str, ...]) -> None:
    assert SegmentOptions.from_options(given).paths == paths


@pytest.mark.parametrize(("option", "text", "field", "value"), SHARED)
def test_what_is_shared_with_the_server_source_is_read_as_there(option: str, text: str, field: str, value: object) -> None:
    assert getattr(read(**{option: text}).read, field) == value


@pytest.mark.parametrize("name", ["isolationLevel", "kafka__isolation__level"])
def test_uncommitted_records_are_read_when_asked_for(name: str) -> None:
    options = read(**{name: "read_uncommitted"})
    assert options.read.isolation is Isolation.READ_UNCOMMITTED
    assert not options.is_committed


@pytest.mark.parametrize("mode", list(ReadMode))
def test_mode_is_named_in_any_case(mode: ReadMode) -> None:
    assert read(mode=mode.value).mode is read(mode=mode.value.lower()).mode is mode


def test_a_running_server_is_named_for_its_lease() -> None:
    options = SegmentOptions.from_options(
        {
            "snapshot": "server",
            "triolog.servers": "localhost:9095",
            "leaseMs": "5000",
            "kafkaConsumer.pollTimeoutMs": "7000",
            "kafka.request.timeout.ms": "3000",
        }
    )
    assert (options.paths, options.snapshot, options.lease_ms) == ((), "server", 5000)
    assert options.read.address == ("localhost", 9095)
    assert (options.read.poll_timeout_ms, options.read.request_timeout_ms) == (7000, 3000)
    with_kafkas_name = SegmentOptions.from_options({"snapshot": "server", "kafka.bootstrap.servers": "localhost:9095"})
    assert with_kafkas_name.read.address == ("localhost", 9095)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no directory is given; name one with load\\(path\\)"),
        ({"path": "/a", "logDir": "/b"}, "path and logDir are given"),
        ({"path": ""}, "option path is ''"),
        ({"logDir": "/a,,"}, "option logDir is '/a,,'"),
        ({"paths": "/a"}, "option paths is '/a', expected a JSON list"),
        ({"path": "/a", "mode": "LENIENT"}, "mode.*LENIENT"),
        ({"path": "/a", "snapshot": "now"}, "snapshot.*now"),
        ({"path": "/a", "snapshot": "server", "triolog.servers": "x:1"}, "option path is refused with snapshot=server"),
        ({"snapshot": "server"}, "kafka.bootstrap.servers"),
        ({"path": "/a", "triolog.servers": "x:1"}, "option triolog.servers is refused with snapshot=files"),
        ({"path": "/a", "leaseMs": "5000"}, "option leaseMs is refused with snapshot=files"),
        ({"snapshot": "server", "triolog.servers": "x:1", "leaseMs": "1"}, "leaseMs.*1000"),
        ({"path": "/a", "subscibe": "a"}, "unknown option subscibe; did you mean subscribe"),
        ({"path": "/a", "maxOffsetsPerTrigger": "5"}, "unknown option maxoffsetspertrigger"),
        ({"path": "/a", "kafka.group.id": "g"}, "unknown option kafka.group.id"),
        ({"path": "/a", "startingOffsets": "latest"}, "startingOffsets"),
        ({"path": "/a", "startingTimestamp": "9", "endingTimestamp": "5"}, "contradict each other"),
        ({"path": "/a", "checkCrcs": "perhaps"}, "checkCrcs"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SegmentOptions.from_options(given)


def test_every_option_is_known_once_and_can_be_sent_to_a_worker() -> None:
    assert len({name.lower() for name in NAMES}) == len(NAMES)
    options = read(mode="FAILFAST", startingTimestamp="5")
    assert pickle.loads(pickle.dumps(options)) == options
