"""What real clients have noted becomes the events that the checker knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from .checker import check
from .history import Ended, Event, Introduced, Moved, Polled
from .loading import events_of, load

TOPIC: Final = ["t", 0]


def said(at: int, do: str, who: str = "a", **told: Any) -> dict[str, Any]:
    return {"at": at, "who": who, "do": do, **told}


def events(*lines: dict[str, Any]) -> list[Event]:
    return list(events_of(lines))


def test_files_are_merged_by_the_clock_that_processes_share(tmp_path: Path) -> None:
    for name, times in (("a", (1_000_000, 4_000_000)), ("b", (2_000_000, 3_000_000))):
        lines = (json.dumps(said(at, "begins", name)) for at in times)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    found = [(event.who, event.at_ms) for event in load([tmp_path / "a", tmp_path / "b"])]
    assert found == [("a", 0.0), ("b", 1.0), ("b", 2.0), ("a", 3.0)]


def test_a_line_that_a_kill_has_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(json.dumps(said(1, "begins")) + "\n" + json.dumps(said(2, "begins"))[:20])
    assert len(load([path])) == 1


def sends(at: int, transaction: str) -> dict[str, Any]:
    return said(at, "sends", to=TOPIC, producer="p", records=[[f"{transaction}:0", 1]], transaction=transaction)


def outcomes(*lines: dict[str, Any]) -> dict[str, bool | None]:
    return {event.transaction: event.is_committed for event in events(*lines) if isinstance(event, Ended)}


def test_a_transaction_that_nobody_asked_to_commit_is_aborted_and_one_that_was_is_open() -> None:
    asked = said(2, "ends", transaction="t", commit=True)
    assert outcomes(sends(1, "t")) == {"t": False}
    assert outcomes(sends(1, "t"), said(2, "ends", transaction="t", commit=False)) == {"t": False}
    assert outcomes(sends(1, "t"), said(2, "ended", transaction="t", committed=None)) == {"t": False}
    assert outcomes(sends(1, "t"), asked) == {}
    assert outcomes(sends(1, "t"), asked, said(3, "ended", transaction="t", committed=None)) == {"t": None}
    assert outcomes(sends(1, "t"), asked, said(3, "ended", transaction="t", committed=True)) == {"t": True}


def epochs(*lines: dict[str, Any]) -> list[int]:
    return [event.epoch for event in events(*lines) if isinstance(event, Introduced)]


def introduction(begun: int, ended: int, producer: str) -> list[dict[str, Any]]:
    told = {"transactional_id": "id", "producer": producer}
    return [said(begun, "introduces", **told), said(ended, "introduced", **told)]


def test_introductions_that_overlap_fence_nobody_for_certain() -> None:
    one, other = introduction(1, 2, "p"), introduction(3, 4, "q")
    assert epochs(*one, *other) == [1, 2]
    (begins, ended), (begins_too, ended_too) = introduction(1, 3, "p"), introduction(2, 4, "q")
    assert epochs(begins, begins_too, ended, ended_too) == [1, 1]


def test_a_reader_that_was_moved_anywhere_goes_on_wherever_its_next_record_is() -> None:
    def polled(at: int, *offsets: int) -> dict[str, Any]:
        records = [[offset, f"a:{offset}", 1] for offset in offsets]
        return said(at, "polled", of=TOPIC, records=records, committed=False, group="", transaction="", next=None)

    told = {"of": TOPIC}
    found = events(polled(1, 4, 5), polled(2, 8), said(3, "moved", position=None, **told), polled(4, 2))
    positions = [(event.position, event.next_position) for event in found if isinstance(event, Polled)]
    assert positions == [(4, 6), (6, 9), (2, 3)]
    assert [event.position for event in found if isinstance(event, Moved)] == [4, 2]


def test_a_commit_without_an_answer_may_still_come() -> None:
    told = {"group": "g", "of": TOPIC}
    commits = [said(at, "commits", offset=at, transaction="", **told) for at in (1, 2)]
    kept = said(3, "offset committed", offset=2, kept=True, **told)
    late = said(4, "offset fetched", offset=1, begun=4, **told)
    unanswered = said(1, "offset committed", offset=1, kept=None, **told)
    assert check(events(commits[0], unanswered, commits[1], kept, late)) == []
    answered = {**unanswered, "kept": True}
    assert {each.kind for each in check(events(commits[0], answered, commits[1], kept, late))} == {"offset went back"}
