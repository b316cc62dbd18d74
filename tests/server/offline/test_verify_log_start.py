"""A log whose start was raised is healthy after any start: a recovery passes over what lies below, and `verify` knows it."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest
from triolog.protocol.errors import OutOfOrderSequenceError
from triolog.protocol.types import Isolation
from triolog.server.config import LogConfig
from triolog.server.offline.findings import Finding, Severity
from triolog.server.offline.verify import Known, check_partition
from triolog.server.storage.directory.inventory import read_partition
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.storage.log.retention import increment_log_start_offset, take_out_below

from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS, DrivenLog, batch, open_driven
from tests.support.stopped_logs import Seen

DIRECTORY = "/topic-0"
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=0)
PRODUCERS = range(1, 4)


def damages(fs: CrashFileSystem, log_start_offset: int) -> list[Finding]:
    seen = Seen()
    known = Known(was_clean=True, log_start_offset=log_start_offset)
    check_partition(fs, read_partition(fs, DIRECTORY), known, seen)
    return [finding for finding in seen.findings if finding.severity is Severity.DAMAGE]


@attrs.define(eq=False)
class History:
    """A log, and what readers of committed records are to see of it."""

    rng: random.Random
    driven: DrivenLog = attrs.field(factory=lambda: open_driven(DIRECTORY, fs=CrashFileSystem(), config=SMALL))
    sequences: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(PRODUCERS, 0))
    epochs: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(PRODUCERS, 0))
    open: dict[int, list[int]] = attrs.field(factory=dict)
    committed: list[int] = attrs.field(factory=list)

    @property
    def fs(self) -> CrashFileSystem:
        assert isinstance(self.driven.fs, CrashFileSystem)
        return self.driven.fs

    def send(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        data = batch(
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            base_sequence=self.sequences[producer_id],
            is_transactional=producer_id != PRODUCERS[-1],
        )
        self.sequences[producer_id] += 1
        try:
            offset = self.driven.append(data).base_offset
        except OutOfOrderSequenceError:  # its batches were below the log start when a recovery met its marker: as in Kafka
            self.end(producer_id)
            self.epochs[producer_id], self.sequences[producer_id] = self.epochs[producer_id] + 1, 0
            return
        if producer_id == PRODUCERS[-1]:
            self.committed.append(offset)
        else:
            self.open.setdefault(producer_id, []).append(offset)

    def end(self, producer_id: int | None = None) -> None:
        if producer_id is None and self.open:
            producer_id = self.rng.choice(list(self.open))
        if producer_id in self.open:
            commit, epoch = self.rng.random() < 0.3, self.epochs[producer_id]
            marker = prepare_marker(
                producer_id=producer_id, producer_epoch=epoch, commit=commit, coordinator_epoch=0, now_ms=START_MS
            )
            self.driven.append_group([marker])
            ended = self.open.pop(producer_id)
            self.committed += ended if commit else []

    def raise_start(self) -> None:
        log = self.driven.log
        self.driven.run(increment_log_start_offset(log, self.rng.randint(log.log_start_offset, log.high_watermark)))

    def take_out(self) -> None:
        self.driven.run(take_out_below(self.driven.log, offset=self.driven.log.log_start_offset, most=9))

    def kill(self) -> None:
        self.driven.fs = self.fs.copy()
        self.driven = self.driven.reopen(was_clean=False, recovery_point=self.rng.choice([0, self.driven.log.recovery_point]))
        self.check()

    def stop(self) -> None:
        start = self.driven.log.log_start_offset
        self.driven.close()
        assert damages(self.fs, start) == []
        self.driven = self.driven.reopen(was_clean=True)
        self.check()

    def check(self) -> None:
        log = self.driven.log
        undecided = min((offsets[0] for offsets in self.open.values()), default=log.log_end_offset)
        seen = [record.offset for record in self.driven.records(Isolation.READ_COMMITTED)]
        expected = [each for each in sorted(self.committed) if log.log_start_offset <= each]
        assert [each for each in seen if each < undecided] == [each for each in expected if each < undecided]


@pytest.mark.parametrize("seed", range(20))
def test_a_history_of_transactions_kills_and_deletions_leaves_no_damage(seed: int) -> None:
    history = History(random.Random(seed))
    deeds: list[Callable[[], None]] = [history.raise_start, history.take_out, history.driven.roll, history.kill, history.stop]
    for _ in range(60):
        deed = history.rng.choice([history.send] * 5 + [history.end] * 3 + deeds)
        (history.driven.roll if deed.__name__ == "roll" else deed)()
    history.kill()
    history.stop()


@pytest.mark.parametrize(("log_start_offset", "is_needed"), [(0, True), (1, True), (2, False)])
def test_an_index_that_lacks_a_transaction_with_records_left_is_damaged(log_start_offset: int, is_needed: bool) -> None:
    history = History(random.Random(0), sequences={1: 0})
    history.rng.choice = lambda of: 1 if 1 in of else of[0]  # type: ignore[assignment, method-assign, operator]
    history.rng.random = lambda: 1.0  # type: ignore[method-assign]
    history.send()
    history.send()
    history.end()
    history.driven.run(increment_log_start_offset(history.driven.log, log_start_offset))
    history.driven.close()
    assert damages(history.fs, log_start_offset) == []
    history.fs.unlink(f"{DIRECTORY}/00000000000000000000.txnindex")
    found = [finding.reason for finding in damages(history.fs, log_start_offset)]
    assert any("lacks what the log says: producer 1 aborted 0 to 2" in reason for reason in found) == is_needed, found
