"""Faults in what share groups deliver, and in what they remember of it."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

SHARE_PARTITIONS: Final = "tests/server/sharing/test_partitions.py"
ACQUISITION_TESTS: Final = "tests/server/sharing/state/test_acquisition.py"

SHARE_FAULTS: Final = {
    "another-members-records": Fault(
        why="A member whose lock is over accepts records that another one is processing, or gives them back.",
        file="server/sharing/state/partition_state.py",
        old="return self.state is RecordState.ACQUIRED and self.target is None and self.member == member\n",
        new="return self.state is RecordState.ACQUIRED and self.target is None\n",
        tests=(
            f"{SHARE_PARTITIONS}::test_a_lock_ends_and_who_waits_gets_the_records",
            f"{SHARE_PARTITIONS}::test_a_member_that_is_gone_gives_back_what_it_had",
        ),
    ),
    "acknowledged-in-memory": Fault(
        why="After a restart records are delivered again that somebody was told are accepted.",
        file="server/sharing/partition.py",
        old="                await self._store(change.batches)\n",
        new="                pass\n",
        tests=(
            f"{SHARE_PARTITIONS}::test_what_was_acknowledged_never_comes_again_and_the_rest_with_its_delivery_count",
            f"{SHARE_PARTITIONS}::test_nobody_is_told_what_is_not_on_the_device",
        ),
    ),
    "delivery-count-in-memory": Fault(
        why="A record that breaks whoever reads it comes again after every restart, and never goes.",
        file="server/sharing/state/partition_state.py",
        old="    return StateBatch(run.first, run.last, state, run.delivery_count)\n",
        new="    return StateBatch(run.first, run.last, state, 0)\n",
        tests=(f"{SHARE_PARTITIONS}::test_what_was_acknowledged_never_comes_again_and_the_rest_with_its_delivery_count",),
    ),
    "lock-without-end": Fault(
        why="What a member has that died is never delivered to another one.",
        file="server/sharing/state/partition_state.py",
        old="                run.settle(self._given_back(run))\n",
        new="                run.deadline_ms = None\n                continue\n",
        tests=(f"{SHARE_PARTITIONS}::test_a_lock_ends_and_who_waits_gets_the_records",),
    ),
    "gap-is-passed-over": Fault(
        why="What members had when the server died, before what was acknowledged, is delivered to nobody.",
        file="server/sharing/state/partition_state.py",
        old="                state.batches.append(InFlightBatch.of(gap, is_gap=True))\n",
        new="                gap.settle(RecordState.ARCHIVED)\n                state.batches.append(InFlightBatch.of(gap))\n",
        tests=(f"{ACQUISITION_TESTS}::test_after_a_restart_offsets_that_are_not_stored_come_as_new",),
    ),
    "start-over-what-is-not-done": Fault(
        why="What a member has, or gave back, before what is done is never delivered again.",
        file="server/sharing/state/partition_state.py",
        old="                if not run.is_done:\n",
        new="                if run.is_available:\n",
        tests=(f"{SHARE_PARTITIONS}::test_a_renewed_lock_begins_anew",),
    ),
    "given-up-too-early": Fault(
        why="A record that was delivered in vain once is archived.",
        file="server/sharing/state/partition_state.py",
        old="        is_last = run.delivery_count >= self.config.delivery_count_limit\n",
        new="        is_last = run.delivery_count + 1 >= self.config.delivery_count_limit\n",
        tests=(f"{ACQUISITION_TESTS}::test_records_given_back_come_in_smaller_pieces_until_they_are_archived",),
    ),
    "aborted-is-delivered": Fault(
        why="A group that reads what is committed processes records of transactions that were aborted.",
        file="server/sharing/state/acquisition.py",
        old="        if aborted:\n            self._archive(aborted)\n",
        tests=(f"{ACQUISITION_TESTS}::test_records_of_aborted_transactions_nobody_gets",),
    ),
    "acknowledgement-half-taken": Fault(
        why="What a member says of records is refused, and some of them are given up all the same.",
        file="server/sharing/state/partition_state.py",
        old="        except RequestError:\n            self.roll_back(change)\n            raise\n",
        new="        except RequestError:\n            raise\n",
        tests=(f"{ACQUISITION_TESTS}::test_what_is_refused_in_part_has_not_happened",),
    ),
    "failed-store-counts": Fault(
        why="A record whose acknowledgement could not be stored is taken for accepted until the next start.",
        file="server/sharing/partition.py",
        old="                self.state.roll_back(change)\n",
        new="                self.state.commit(change)\n",
        tests=(f"{SHARE_PARTITIONS}::test_what_cannot_be_stored_has_not_happened",),
    ),
    "update-forgets-those-before": Fault(
        why="After a restart records come again that were accepted before the last acknowledgement.",
        file="server/sharing/state/stored_state.py",
        old="        batches=overlaid(before.batches, batches, start_offset),\n",
        new="        batches=overlaid((), batches, start_offset),\n",
        tests=("tests/server/sharing/state/test_stored_state.py::test_after_many_updates_comes_a_snapshot_that_says_the_same",),
    ),
}
