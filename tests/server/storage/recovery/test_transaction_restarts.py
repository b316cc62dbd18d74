"""Producers and transactions over restarts, against what the history says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.server.storage.log.truncate import truncate_to

from tests.server.storage.log.test_transactions import COMMITTED, SMALL, end, send, values
from tests.support.logs import batch, open_driven


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("plain"), st.just(0)),
            st.tuples(st.sampled_from(["send", "commit", "abort"]), st.integers(1, 3)),
            st.tuples(st.sampled_from(["roll", "clean", "unclean"]), st.just(0)),
            st.tuples(st.just("truncate"), st.integers(0, 40)),
        ),
        max_size=40,
    )
)
def test_committed_reads_are_what_the_history_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Against a list of what was stored: a record is seen when its transaction, if any, was committed, and no transaction
    that begins before it is open."""
    driven = open_driven(tmp_path_factory.mktemp("log"), config=SMALL)
    stored: list[tuple[str, int]] = []
    sequences: dict[int, int] = {}
    for step, number in steps:
        if step == "plain":
            driven.append(batch())
            stored.append((step, 0))
        elif step == "send":
            send(driven, number, sequences.get(number, 0))
            sequences[number] = sequences.get(number, 0) + 1
            stored.append((step, number))
        elif step in ("commit", "abort"):
            end(driven, number, committed=step == "commit")
            stored.append((step, number))
        elif step == "roll":
            driven.roll()
        elif step == "truncate":
            if number < len(stored):
                driven.run(truncate_to(driven.log, number))
                del stored[number:]
                sequences = {pid: sum(entry == ("send", pid) for entry in stored) for pid in sequences}
        else:
            if step == "clean":
                driven.close()
            driven.log.drop_maps()
            driven = driven.reopen(was_clean=step == "clean")
        assert values(driven.records(COMMITTED)) == _committed(stored)
        assert driven.log.last_stable_offset == min(_open(stored), default=len(stored))
    driven.log.drop_maps()


def _open(stored: list[tuple[str, int]]) -> list[int]:
    """First offsets of the transactions that have no marker."""
    firsts: dict[int, int] = {}
    for offset, (step, pid) in enumerate(stored):
        if step == "send":
            firsts.setdefault(pid, offset)
        elif step in ("commit", "abort"):
            firsts.pop(pid, None)
    return list(firsts.values())


def _committed(stored: list[tuple[str, int]]) -> list[int]:
    seen = []
    for offset, (step, pid) in enumerate(stored[: min(_open(stored), default=len(stored))]):
        following = [kind for kind, other in stored[offset:] if other == pid and kind in ("commit", "abort")]
        if step == "plain" or (step == "send" and following[0] == "commit"):
            seen.append(offset)
    return seen
