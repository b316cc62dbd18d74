from __future__ import annotations

from pathlib import Path

import pytest
import triolog
from click.testing import Result
from triolog.protocol.errors import CorruptRecordError, RecordTooLargeError, RequestError
from triolog.protocol.native.messages import FetchPartitionResponse, FetchRequest, Gaps
from triolog.protocol.records.batch import parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.forward.options import open_source
from triolog.tools.forward.errors import SourceFailedError
from triolog.tools.forward.settings.forward_settings import ForwardSettings, read_link
from triolog.tools.forward.settings.link_settings import Secret
from triolog.tools.forward.source.source import Gap, Piece, Places

from tests.support.damaged_batches import flip
from tests.support.forwarding import ANY_PORT, FOR_EVER, TOPIC, Forwarding
from tests.tools.cli.conftest import call
from tests.tools.forward.test_delivery import numbered


def sent(directory: Path, upstream: BlockingBroker, state_dir: Path, *more: str) -> Result:
    """`triolog forward --from-dir`."""
    return call(
        *("forward", "--from-dir", directory, "--to", upstream.bootstrap_servers, "--topics", TOPIC, "--link", "link"),
        *("--drain", "--state-dir", state_dir, *more),
    )


def send(directory: Path, upstream: BlockingBroker, state_dir: Path) -> str:
    result = sent(directory, upstream, state_dir)
    assert result.exit_code == 0, result.output
    return result.stderr


def filled(directory: Path, upstream: BlockingBroker, *, forwarded: int = 0, total: int = 100) -> None:
    """A server's directory with one topic, of which a link has sent the first records."""
    with triolog.blocking.open(directory, native=ANY_PORT, config={**FOR_EVER, "segment.bytes": "4096"}) as source:
        source.create_topic(TOPIC, 2)
        pair = Forwarding(source, upstream)
        if forwarded:
            pair.append(numbered(0, forwarded))
            link = pair.link(drain=True)
            link._node = None
            link.run()
        for first in range(forwarded, total, 10):
            pair.append(numbered(first, first + 10))
        pair.append([b"other"], partition=1)


def test_it_goes_on_where_the_dead_server_s_link_was(tmp_path: Path, upstream: BlockingBroker) -> None:
    filled(tmp_path / "data", upstream, forwarded=30)
    send(tmp_path / "data", upstream, tmp_path / "state")
    assert upstream.log(TOPIC).values(0) == numbered(0, 100)


def test_the_dead_servers_notes_count_where_the_upstream_forgot(tmp_path: Path, upstream: BlockingBroker) -> None:
    filled(tmp_path / "data", upstream, forwarded=30)
    upstream.delete_topic(TOPIC)
    upstream.create_topic(TOPIC, 2)
    assert "as noted in the source" in send(tmp_path / "data", upstream, tmp_path / "state")
    assert upstream.log(TOPIC).values(0) == numbered(30, 100)


def test_a_directory_goes_upstream_whole_and_once_and_stays_as_it_is(tmp_path: Path, upstream: BlockingBroker) -> None:
    def content() -> dict[str, bytes]:
        found = {str(path): path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
        return {path: data for path, data in found.items() if not path.endswith(".lock")}

    filled(tmp_path / "data", upstream)
    before = content()
    for _ in range(2):
        send(tmp_path / "data", upstream, tmp_path / "state")
        assert upstream.log(TOPIC).values(0) == numbered(0, 100)
        assert upstream.log(TOPIC).values(1) == [b"other"]
    assert content() == before


def test_a_damaged_batch_is_a_gap_that_the_upstream_is_told_of(tmp_path: Path, upstream: BlockingBroker) -> None:
    filled(tmp_path / "data", upstream)
    segment = sorted((tmp_path / "data" / f"{TOPIC}-0").glob("*.log"))[0]
    flip(segment, 100)
    assert "skipping damaged" in send(tmp_path / "data", upstream, tmp_path / "state")
    records = upstream.log(TOPIC).fetch(partition=0)
    assert [record.value for record in records] == numbered(10, 100)
    assert records[0].headers == (("triolog.gap", b"0-9"),)


def test_a_directory_in_use_or_at_least_once_is_refused(tmp_path: Path, upstream: BlockingBroker) -> None:
    with triolog.blocking.open(tmp_path / "data", config=FOR_EVER, native="127.0.0.1:0") as source:
        source.create_topic(TOPIC)
        assert sent(tmp_path / "data", upstream, tmp_path / "state").exit_code == 3
    assert sent(tmp_path / "data", upstream, tmp_path / "state", "--delivery", "at-least-once").exit_code == 2
    assert TOPIC not in upstream.topics()


LINK = read_link("the test", {"name": "a", "to": "there:9092", "topics": ["t"]})


def test_a_link_logs_in_with_the_password_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with triolog.blocking.open(users={"edge": "secret"}, topics=["t"], security=keys, native="127.0.0.1:0") as broker:
        for password in (None, Secret("variable", "EDGE")):
            settings = ForwardSettings(server=Address(*broker.native), links=(LINK,), user="edge", password=password)
            variable = "TRIOLOG_PASSWORD" if password is None else "EDGE"
            monkeypatch.setenv(variable, "an older secret")
            with open_source(settings, None) as opener:
                source = opener()
                with pytest.raises(SourceFailedError, match="invalid credentials") as caught:
                    source.topics()
                assert "secret" not in str(caught.value)
                monkeypatch.setenv(variable, "secret")
                assert list(source.topics()) == ["t"]
                source.close()
                monkeypatch.delenv(variable)
                source = opener()
                with pytest.raises(SourceFailedError, match="cannot read the password of edge from its variable"):
                    source.topics()
                source.close()


A, B, C = (TopicPartition(name, 0) for name in "abc")


def batch(first: int, count: int) -> bytes:
    """Records `first` up to `first + count`, whose values are their offsets."""
    built = build_batch([(1, None, b"%d" % number, ()) for number in range(first, first + count)])
    return stamp(first, parse_header(built), 0) + bytes(built[16:])


def answer(partition: TopicPartition, records: bytes, end: int, **more: object) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        partition.topic, partition.partition, None, high_watermark=end, last_stable_offset=end, records=records, **more
    )


def places(*partitions: TopicPartition, ranks: dict[str, int] | None = None) -> Places:
    return Places(dict.fromkeys(partitions, 0), ranks or {})


def asked(request: FetchRequest | None) -> list[str]:
    return [each.topic for each in request.partitions]


def values(pieces: list[Piece]) -> list[bytes | None]:
    return [record.value for piece in pieces for record in piece.records]


def test_partitions_of_one_rank_take_turns_at_being_first() -> None:
    found = places(A, B, C)
    assert {tuple(asked(found.plan_fetch(0))) for _ in range(3)} == {("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")}


def test_while_a_topic_is_known_to_have_more_only_those_before_it_are_asked_for_too() -> None:
    found = places(A, B, C, ranks={"a": 1, "b": 0, "c": 2})
    assert asked(found.plan_fetch(500)) == ["b", "a", "c"]
    found.accept((answer(B, b"", 0), answer(A, batch(0, 2), 10), answer(C, b"", 10)))
    request = found.plan_fetch(500)
    assert asked(request) == ["b", "a"]
    assert request.max_wait_ms == 0
    found.accept((answer(B, b"", 0), answer(A, batch(2, 8), 10)))
    assert asked(found.plan_fetch(500)) == ["b", "a", "c"]


def test_of_answers_whole_batches_behind_the_offset_are_handed_out() -> None:
    found = Places({A: 3}, {})
    found.plan_fetch(0)
    pieces, _ = found.accept((answer(A, batch(0, 6), 6),))
    assert values(pieces) == [b"3", b"4", b"5"]
    assert pieces[0].next_offset == 6
    found = places(A, B)
    found.plan_fetch(0)
    pieces, errors = found.accept((answer(A, batch(0, 2), 2), answer(B, batch(0, 50)[:100], 50)))
    assert (values(pieces), errors) == ([b"0", b"1"], []), "what the limit cut short comes again"
    assert found.offset(B) == 0
    found = places(A, B)
    found.plan_fetch(0)
    with pytest.raises(RecordTooLargeError, match="100 bytes of a-0 at offset 0 hold no whole batch"):
        found.accept((answer(A, batch(0, 50)[:100], 50), answer(B, b"", 0)))
    found.plan_fetch(0)
    with pytest.raises(CorruptRecordError, match="carries CRC"):
        found.accept((answer(A, batch(0, 5)[:-1] + b"x", 5),))


def test_a_gap_is_told_with_the_first_record_behind_it_and_the_offset_stays_before_it_until_then() -> None:
    found = Places({A: 5}, {})
    assert found.lost_before(A, 20) == Gap(5, 19)
    found.plan_fetch(0)
    pieces, _ = found.accept((answer(A, b"", 30, next_offset=25),))  # what compaction has left nothing of
    assert [(piece.next_offset, piece.gap) for piece in pieces] == [(5, None)]
    found.plan_fetch(0)
    pieces, _ = found.accept((answer(A, batch(25, 2), 30),))
    assert [(piece.next_offset, piece.gap) for piece in pieces] == [(27, Gap(5, 19))]


def test_damage_is_passed_over_alone_and_becomes_a_gap() -> None:
    found = places(A, B)
    found.plan_fetch(0)
    assert found.skip_damage(A)
    request = found.plan_fetch(500)
    assert (asked(request), request.gaps) == (["a"], Gaps.SKIP)
    pieces, _ = found.accept((answer(A, batch(7, 3), 10),))
    assert [(piece.next_offset, piece.gap) for piece in pieces] == [(10, Gap(0, 6))]
    request = found.plan_fetch(500)
    assert (sorted(asked(request)), request.gaps) == (["a", "b"], Gaps.REFUSE)


def test_nothing_is_left_when_all_were_asked_and_none_had_anything() -> None:
    found = places(A, B)
    found.plan_fetch(0)
    assert found.is_finished(*found.accept((answer(A, b"", 0), answer(B, b"", 0))))
    found.plan_fetch(0)
    assert not found.is_finished(*found.accept((answer(A, batch(0, 1), 1), answer(B, b"", 0))))
    found.plan_fetch(0)
    failed = FetchPartitionResponse("a", 0, RequestError("not now"))
    assert not found.is_finished(*found.accept((failed, answer(B, b"", 0))))
