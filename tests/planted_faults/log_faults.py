"""Faults in what one log does: producers, transactions, reading, cutting back, retention, compaction, recovery."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

STORAGE: Final = "tests/server/storage"
BATCH_FILTER: Final = f"{STORAGE}/cleaner/test_batch_filter.py"
CLEAN: Final = f"{STORAGE}/cleaner/test_clean.py"
SELECTION: Final = f"{STORAGE}/cleaner/test_selection.py"
SWAP: Final = f"{STORAGE}/cleaner/test_swap.py"
DISKOPS: Final = f"{STORAGE}/disk/test_diskops.py"
DERIVED_FILES: Final = f"{STORAGE}/log/test_derived_files.py"
TRANSACTIONS_TESTS: Final = f"{STORAGE}/log/test_transactions.py"
EARLIER_BATCHES: Final = f"{STORAGE}/producers/test_producer_snapshots.py"
PRODUCER_CURSOR: Final = f"{STORAGE}/producers/test_producer_cursor.py"
PRODUCER_SNAPSHOTS: Final = f"{STORAGE}/producers/test_producer_snapshots.py"
PRODUCER_STATE: Final = f"{STORAGE}/producers/test_producer_cursor.py"
LOAD: Final = f"{STORAGE}/recovery/test_recovery.py"
RECOVERY_PRODUCERS: Final = f"{STORAGE}/recovery/test_recovery_producers.py"
SALVAGE: Final = f"{STORAGE}/recovery/test_quarantine.py"

PRODUCERS: Final = {
    "last-five": Fault(
        why="The oldest of five batches in flight that is sent again is stored twice.",
        file="server/storage/producers/producer_cursor.py",
        old="batches = (*batches[1 - CACHED_BATCHES :], ",
        new="batches = (*batches[2 - CACHED_BATCHES :], ",
        tests=(f"{PRODUCER_CURSOR}::test_the_last_five_batches_of_a_producer_are_known_again_and_no_others",),
    ),
    "duplicate-of-an-older-epoch": Fault(
        why="The first batch of a new epoch is taken for the first of the old one and acknowledged without being stored.",
        file="server/storage/producers/producer_cursor.py",
        old="        if header.producer_epoch != self.epoch:\n            return None\n",
        tests=(f"{PRODUCER_CURSOR}::test_sequences_follow_each_other_and_epochs_fence",),
    ),
    "checksum-on-the-spot": Fault(
        why="A small batch that was damaged on its way is stored and handed to readers.",
        file="server/storage/log/prepare.py",
        old="    if crc32c(batch[ATTRIBUTES_POSITION:]) != crc:\n",
        new="    if crc32c(batch[ATTRIBUTES_POSITION:]) == -1:\n",
        tests=("tests/server/storage/log/test_append.py::test_every_bit_counts[one record-False]",),
    ),
    "next-batch-of-an-older-epoch": Fault(
        why="A producer that was taken for dead goes on where its successor is.",
        file="server/storage/producers/producer_cursor.py",
        old=" or header.producer_epoch != self.epoch:\n            return False\n",
        new=":\n            return False\n",
        tests=(
            f"{PRODUCER_CURSOR}::test_the_batch_behind_those_that_came_is_next",
            f"{PRODUCER_CURSOR}::test_a_batch_that_is_next_is_one_that_the_whole_of_the_rules_takes",
        ),
    ),
    "epoch-fencing": Fault(
        why="A producer that was taken for dead goes on writing beside its successor.",
        file="server/storage/producers/producer_cursor.py",
        old="    if header.producer_epoch < entry.epoch:\n",
        new="    if header.producer_epoch + 1 < entry.epoch:\n",
        tests=(f"{PRODUCER_CURSOR}::test_sequences_follow_each_other_and_epochs_fence",),
    ),
    "sequence-wrap": Fault(
        why="A producer is refused for ever after 2^31 records.",
        file="server/storage/producers/producer_cursor.py",
        old="    if first == last + 1 or (first == 0 and last == INT32_MAX):\n",
        new="    if first == last + 1:\n",
        tests=(f"{PRODUCER_CURSOR}::test_sequences_wrap_inside_a_batch_and_after_the_largest_only_zero_follows",),
    ),
    "append-cut-in-two": Fault(
        why="A producer whose append a kill has cut in two is refused for ever: its other batches are never stored.",
        file="server/storage/producers/producer_cursor.py",
        old="    while last is None and count > 1:\n",
        new="    while last is None and count > len(headers):\n",
        tests=(
            f"{RECOVERY_PRODUCERS}::test_of_an_append_that_a_kill_cut_in_two_the_rest_is_stored_when_it_is_sent_again[1-False]",
        ),
    ),
    "earlier-batches-unread": Fault(
        why="After a restart a client with five requests in flight is refused for ever when it sends an earlier one again.",
        file="server/storage/producers/producer_snapshots.py",
        old="        return None if data is None else with_earlier(path, data, entries, snapshot_crc)\n",
        new="        return entries\n",
        tests=(
            f"{EARLIER_BATCHES}::test_a_clean_stop_with_five_requests_in_flight_knows_each_of_them_again",
            f"{EARLIER_BATCHES}::test_a_kill_behind_a_roll_with_five_requests_in_flight_knows_each_of_them_again[2]",
            "tests/server/storage/log/test_log_life.py::test_every_history_keeps_what_it_promised",
        ),
    ),
    "earlier-batches-unsynced": Fault(
        why="A power cut behind a roll takes what was in flight before it: what is sent again is refused for ever.",
        file="server/storage/log/log.py",
        old="for path in snapshot_paths(self.directory, self.unsynced_snapshot)]",
        new="for path in snapshot_paths(self.directory, self.unsynced_snapshot)[:1]]",
        tests=(f"{TRANSACTIONS_TESTS}::test_the_snapshot_of_a_roll_is_synced_before_the_recovery_point_passes_it",),
    ),
    "earlier-batches-of-another-snapshot": Fault(
        why="Batches that a Kafka has cut off meanwhile count as stored: what is sent again is acknowledged and not there.",
        file="server/storage/producers/producer_snapshots.py",
        old="    if belongs_to != snapshot_crc:\n",
        new="    if belongs_to is None:\n",
        tests=(f"{EARLIER_BATCHES}::test_a_file_of_the_snapshots_crc_alone_is_told_from_another",),
    ),
    "transaction-index-unchecked": Fault(
        why="A segment whose .txnindex was lost shows aborted records to committed readers.",
        file="server/storage/recovery/recovery.py",
        old="            drive(self.fs, self.derived.check(segment))\n",
        tests=(
            f"{DERIVED_FILES}::test_a_transaction_index_that_was_changed_behind_a_clean_stop_is_made_anew_and_said[missing-0]",
            f"{DERIVED_FILES}::test_what_kafka_wrote_is_known_once_it_is_adopted",
        ),
    ),
    "lookup-index-unchecked": Fault(
        why="An index that was altered after a clean stop leads to the wrong record.",
        file="server/storage/log/derived_files.py",
        old="        self._check_lookups(segment)\n",
        tests=(
            "tests/server/test_share_crashes.py::test_what_was_acknowledged_never_comes_again_and_nothing_is_lost",
            "tests/server/test_sigkill_topics.py::test_topic_changes_are_whole_or_absent_after_sigkill",
        ),
    ),
    "log-start-in-one-place": Fault(
        why="Deleted records are back when log-start-offset-checkpoint was lost.",
        file="server/storage/recovery/recovery.py",
        old="        self.request = attrs.evolve(request, log_start_offset=known)\n",
        tests=(f"{DERIVED_FILES}::test_records_that_were_deleted_stay_so_without_their_line_in_the_checkpoint[0-True]",),
    ),
    "lost-derived-file": Fault(
        why="Deleted records are back when derived.json is lost between a clean stop and the next start.",
        file="server/storage/recovery/recovery.py",
        old=" and not self._are_facts_lost()\n",
        new="\n",
        tests=(
            "tests/server/test_contradictory_files.py::test_a_lost_derived_file_brings_no_deleted_record_back",
            "tests/server/logs/test_topic_crashes.py"
            "::test_with_altered_derived_files_a_change_is_whole_or_absent_and_records_are_what_they_were",
        ),
    ),
    "log-start-of-a-log-that-was-cut": Fault(
        why="Records that a Kafka has written behind a cut are hidden, and put aside, for what was deleted before it.",
        file="server/storage/recovery/recovery.py",
        old="known > max(checkpoint, first) and drive(self.fs, _reaches(self.segments, known))\n",
        new="known > max(checkpoint, first)\n",
        tests=(f"{DERIVED_FILES}::test_an_offset_that_the_log_does_not_reach_is_passed_over[cut]",),
    ),
    "snapshot-from-behind-the-scan": Fault(
        why="Sequences of batches that recovery takes out count as stored: what is sent again is acknowledged and not there.",
        file="server/storage/producers/producer_snapshots.py",
        old="        if not log_start_offset < offset <= at_or_below:\n",
        new="        if not log_start_offset < offset:\n",
        tests=(f"{PRODUCER_SNAPSHOTS}::test_the_newest_readable_snapshot_in_range_is_taken_and_a_broken_one_deleted",),
    ),
    "snapshot-sync": Fault(
        why="The recovery point passes a segment whose producer snapshot a power cut takes: its sequences are forgotten once "
        "the batches are deleted.",
        file="server/storage/log/log.py",
        old="        operations = self.sync_of_snapshot()\n",
        new="        operations: list[DiskOp] = []\n",
        tests=(f"{TRANSACTIONS_TESTS}::test_the_snapshot_of_a_roll_is_synced_before_the_recovery_point_passes_it",),
    ),
}

TRANSACTIONS: Final = {
    "marker-above-the-high-watermark": Fault(
        why="Records of a transaction are shown as committed before its marker is on the device.",
        file="server/storage/producers/producer_state.py",
        old="        if self.unreplicated and self.unreplicated[0].last_offset < offset:\n"
        "            while self.unreplicated and self.unreplicated[0].last_offset < offset:\n",
        new="        if self.unreplicated:\n            while self.unreplicated:\n",
        tests=(f"{PRODUCER_STATE}::test_the_first_unstable_offset_moves_when_the_marker_is_below_the_high_watermark",),
    ),
    "stable-offset-in-an-entry": Fault(
        why="Readers stop looking for aborted transactions too early and take aborted records for committed ones.",
        file="server/storage/producers/producer_cursor.py",
        old="        return min(others, default=completed.last_offset + 1)\n",
        new="        return completed.last_offset + 1\n",
        tests=(f"{PRODUCER_CURSOR}::test_overlapping_transactions_report_the_last_stable_offset_of_their_moment",),
    ),
    "last-stable-offset-below-the-log-start": Fault(
        why="Committed readers of a trimmed log get a position that does not exist.",
        file="server/storage/log/log.py",
        old="        return max(first_unstable, self.log_start_offset)\n",
        new="        return first_unstable\n",
        tests=(f"{TRANSACTIONS_TESTS}::test_the_first_unstable_offset_is_not_below_the_log_start_offset",),
    ),
    "aborted-in-a-later-segment": Fault(
        why="A transaction that began in one segment and was aborted in the next is read as committed.",
        file="server/storage/log/log.py",
        old="        for each in range(slot, len(self)):\n            entries = ",
        new="        for each in range(slot, slot + 1):\n            entries = ",
        tests=("tests/server/storage/log/test_log_life.py::test_every_history_keeps_what_it_promised",),
    ),
    "aborted-search-ends-early": Fault(
        why="Of overlapping aborted transactions the one that ends last is left out of a fetch's list.",
        file="server/storage/indexes/transaction_index.py",
        old="        if txn.last_stable_offset >= upper_bound:\n",
        new="        if txn.last_offset >= upper_bound:\n",
        tests=("tests/server/storage/indexes/test_index.py::test_aborted_transactions_of_a_range",),
    ),
    "transaction-index-name": Fault(
        why="A power cut takes the index of a closed segment: its aborted records are read as committed.",
        file="server/storage/log/log.py",
        old="                if active.transaction_index.entries:\n",
        new="                if False:\n",
        tests=(
            f"{TRANSACTIONS_TESTS}::test_a_transaction_index_is_on_the_device_when_its_segment_is_closed_below_the_recovery_point",
        ),
    ),
}

READING: Final = {
    "fetch-behind-the-stable-offset": Fault(
        why="Undecided records are handed to committed readers.",
        file="server/storage/log/log.py",
        old="        return self.readable_end(slot) if unstable is None else unstable.position\n",
        new="        return self.readable_end(slot)\n",
        tests=("tests/server/storage/log/test_log_life.py::test_every_history_keeps_what_it_promised",),
    ),
    "fetch-at-once-behind-the-stable-offset": Fault(
        why="Undecided records are handed to committed readers, wherever they are cached.",
        file="server/storage/lookups/fetch.py",
        old=" or (is_committed and snapshot.last_stable_offset != high_watermark):\n",
        new=":\n",
        tests=("tests/server/storage/lookups/test_timestamps.py::test_what_needs_another_look_is_left_to_the_long_way",),
    ),
    "time-at-once-above-the-high-watermark": Fault(
        why="A lookup answers a record that no reader may see yet, wherever it is cached.",
        file="server/storage/lookups/timestamps.py",
        old="        if base_offset + offset_delta >= end_offset:\n",
        new="        if False:\n",
        tests=("tests/server/storage/lookups/test_timestamps.py::test_a_record_above_the_high_watermark_is_none",),
    ),
    "misplaced-base-offset": Fault(
        why="fetch.check.crcs lets a batch pass whose offset, which no CRC covers, was damaged: records change places.",
        file="server/storage/lookups/fetch_check.py",
        old="    for wrong, next_offset in misplaced:\n",
        new="    for wrong, next_offset in misplaced[:0]:\n",
        tests=(
            "tests/server/storage/lookups/test_fetch.py::test_no_flipped_bit_leaves_the_log",
            "tests/server/storage/lookups/test_fetch.py::test_a_flipped_bit_of_a_header_hides_its_batch_and_no_other",
        ),
    ),
    "read-into-a-gap": Fault(
        why="A consumer passes lost records over without being told.",
        file="server/storage/lookups/fetch.py",
        old="                end = min(end, (yield from _gap_position(view, gap, found)))\n",
        new="                pass\n",
        tests=("tests/server/storage/log/test_gaps.py::test_a_read_ends_before_a_gap_and_the_next_one_meets_it",),
    ),
    "nothing-before-a-gap": Fault(
        why="A consumer before a gap that compaction has emptied up to there is answered with nothing for ever.",
        file="server/storage/lookups/fetch.py",
        old="                if found.header.base_offset >= gap.start_offset and not is_damaged:",
        new="                if False:",
        tests=("tests/server/storage/log/test_gaps.py::test_a_read_before_a_gap_that_compaction_has_emptied_meets_the_gap",),
    ),
    "accepted-in-memory": Fault(
        why="What somebody has accepted stops consumers again after the next start.",
        file="server/storage/log/changes.py",
        old="encode_gaps(gaps), durable",
        new="encode_gaps(log.gaps), durable",
        tests=(
            "tests/server/storage/log/test_gaps.py::test_what_is_accepted_is_passed_over_for_ever_unless_the_reader_says_otherwise",
        ),
    ),
}

TRUNCATION: Final = {
    "stale-snapshots": Fault(
        why="A producer snapshot from behind the cut is loaded once the log has grown over it with other batches.",
        file="server/storage/log/changes.py",
        old="        if offset > above:\n",
        new="        if False:\n",
        tests=(f"{TRANSACTIONS_TESTS}::test_truncation_deletes_the_snapshot_of_a_clean_stop_behind_its_offset",),
    ),
    "cut-on-the-device": Fault(
        why="A power cut brings removed batches back behind, or between, the ones that took their offsets.",
        file="server/storage/log/changes.py",
        old="        yield from (each for each in log.active.sync_of(log.active.log, min(log.recovery_point, offset)))\n"
        "        yield SyncDirectory(log.directory)\n",
        new="        pass\n",
        tests=("tests/server/storage/log/test_log_life.py::test_every_history_keeps_what_it_promised",),
    ),
    "high-watermark-behind-the-cut": Fault(
        why="The high watermark stays above the end: what is appended there next can be read before it is on the device.",
        file="server/storage/log/changes.py",
        old="    if log.high_watermark >= offset:\n",
        new="    if False:\n",
        tests=("tests/server/storage/log/test_log.py::test_high_watermark_recovery_point_and_log_start_follow_the_end_down",),
    ),
    "flush-across-a-cut": Fault(
        why="A flush that was planned before a cut says that the bytes of the batches after it are on the device.",
        file="server/storage/log/log.py",
        old="        if plan.truncations == self.truncations:\n",
        new="        if True:\n",
        tests=("tests/server/storage/log/test_log.py::test_a_flush_planned_before_a_truncation_does_not_pass_the_end",),
    ),
}

RETENTION: Final = {
    "neighbours-of-refused-bytes": Fault(
        why="A batch that a failed sync took along is served with a wrong CRC after a clean stop.",
        file="server/storage/disk/write_again.py",
        old="    while checked < position:\n",
        new="    while checked < 0:\n",
        tests=(
            "tests/server/storage/disk/test_diskops.py::test_synced_bytes_that_share_pages_with_refused_ones_are_checked",
            "tests/server/partitions/test_flusher.py::test_a_synced_record_that_a_failed_sync_took_along_is_not_served",
        ),
    ),
    "verify-below-the-log-start": Fault(
        why="A healthy directory counts as damaged once records were deleted, and scripts that verify stop.",
        file="server/offline/small_files_check.py",
        old="    for producer_id, first_offset in needed.ongoing.items():\n",
        new="    for producer_id, first_offset in producers.ongoing.items():\n",
        tests=(
            "tests/server/storage/log/test_log_life.py::test_a_history_of_transactions_kills_and_deletions_leaves_no_damage",
        ),
    ),
    "retention-above-the-high-watermark": Fault(
        why="Records are deleted before anyone could read them.",
        file="server/storage/log/retention.py",
        old="    return log.high_watermark >= _end_of(log, segment) and",
        new="    return log.log_end_offset >= _end_of(log, segment) and",
        tests=("tests/server/storage/log/test_retention.py::test_only_segments_wholly_below_the_high_watermark_go",),
    ),
    "flush-before-giving-up": Fault(
        why="A power cut before the log start checkpoint leaves neither the active segment nor the note that it may be gone.",
        file="server/storage/log/retention.py",
        old="        if log.sync_metadata:\n            plan = log.plan_flush()\n",
        new="        if False:\n            plan = log.plan_flush()\n",
        tests=("tests/server/storage/log/test_retention.py::test_the_active_segment_is_on_the_device_before_it_is_given_up",),
    ),
    "retention-by-the-newest-record": Fault(
        why="A segment goes although its newest record is to be kept.",
        file="server/storage/log/retention.py",
        old="            if now_ms - largest <= log.config.retention_ms:\n",
        new="            if now_ms - largest < log.config.retention_ms:\n",
        tests=("tests/server/storage/log/test_retention.py::test_a_segment_goes_when_its_newest_record_is_older_strictly",),
    ),
}

CLEANER: Final = {
    "cleaning-above-the-recovery-point": Fault(
        why="The old value of a key is dropped for a new one that a power cut takes back.",
        file="server/storage/cleaner/selection.py",
        old="        bounds.append(log.recovery_point)\n",
        tests=(f"{SELECTION}::test_nothing_above_the_recovery_point_is_cleaned",),
    ),
    "cleaning-a-decision-that-is-not-synced": Fault(
        why="A value is replaced by that of a transaction whose marker a power cut takes: it is aborted, and both are gone.",
        file="server/storage/cleaner/selection.py",
        old="            bounds.append(log.producers.first_unsynced_offset)\n",
        new="            pass\n",
        tests=(f"{SELECTION}::test_a_transaction_whose_marker_is_not_on_the_device_holds_the_end_back",),
    ),
    "cleaning-undecided-records": Fault(
        why="The value of an open transaction replaces a committed one and is aborted afterwards.",
        file="server/storage/cleaner/selection.py",
        old="    bounds = [log.last_stable_offset, log.active.base_offset]\n",
        new="    bounds = [log.active.base_offset]\n",
        tests=(f"{SELECTION}::test_undecided_transactions_hold_the_end_back",),
    ),
    "aborted-in-the-offset-map": Fault(
        why="An aborted record replaces a committed one of its key.",
        file="server/storage/cleaner/clean.py",
        old="        elif not transactions.on_data_batch(header) and header.last_offset >= start:\n",
        new="        elif header.last_offset >= start:\n",
        tests=("tests/server/storage/cleaner/test_clean.py::test_an_aborted_record_does_not_replace_a_committed_one",),
    ),
    "delete-horizon": Fault(
        why="A tombstone goes in the first round: who reads slowly never hears that the key was deleted.",
        file="server/storage/cleaner/batch_filter.py",
        old="        horizon = self.rules.now_ms + self.rules.delete_retention_ms\n",
        new="        horizon = self.rules.now_ms\n",
        tests=(f"{BATCH_FILTER}::test_a_first_seen_tombstone_gets_a_delete_horizon_and_timestamps_stay",),
    ),
    "marker-before-its-records": Fault(
        why="The marker of an aborted transaction goes together with its index entry while records of it may still be read.",
        file="server/storage/cleaner/batch_filter.py",
        old="        self._aborted[header.producer_id] = entry[0], True\n",
        new="        self._aborted[header.producer_id] = entry[0], False\n",
        tests=(f"{CLEAN}::test_aborted_records_vanish_and_what_is_reported_stays_right",),
    ),
    "commit-marker-before-its-records": Fault(
        why="Without its marker a committed transaction is open again for whoever rebuilds the producers from the log.",
        file="server/storage/cleaner/batch_filter.py",
        old="            return not has_batches\n",
        new="            return True\n",
        tests=(f"{CLEAN}::test_a_commit_marker_goes_once_its_records_are_gone_and_its_time_has_come",),
    ),
    "retain-empty": Fault(
        why="The sequence of a producer whose records were all replaced is forgotten: what it sends again is stored twice.",
        file="server/storage/cleaner/batch_filter.py",
        old="        if header.next_offset != self.rules.end_offset and not self._is_last_of_producer(header):\n",
        new="        if header.next_offset != self.rules.end_offset:\n",
        tests=(
            f"{BATCH_FILTER}::test_the_last_batch_of_a_producer_stays_as_an_empty_header",
            "tests/server/storage/cleaner/test_clean.py::test_the_last_sequence_of_a_producer_outlives_its_records",
        ),
    ),
    "swap-before-the-old-is-gone": Fault(
        why="A power cut leaves a new segment and old ones in its range: records are there twice.",
        file="server/storage/cleaner/swap.py",
        old="keep_snapshot=segment.base_offset in bases)))\n    yield from _sync_names(log)\n",
        new="keep_snapshot=segment.base_offset in bases)))\n",
        tests=(f"{SWAP}::test_a_power_cut_at_every_operation_of_a_replacement_loses_and_doubles_nothing[most stays]",),
    ),
    "swap-names": Fault(
        why="Old segments go while the names of the new ones are not on the device: records are lost.",
        file="server/storage/cleaner/swap.py",
        old="name + CLEANED_SUFFIX, name + SWAP_SUFFIX)\n        yield from _sync_names(log)\n",
        new="name + CLEANED_SUFFIX, name + SWAP_SUFFIX)\n",
        tests=(f"{SWAP}::test_a_power_cut_at_every_operation_of_a_replacement_loses_and_doubles_nothing[most stays]",),
    ),
    "swap-at-load": Fault(
        why="A second power cut, during the start, leaves a new segment in place and old ones in its range.",
        file="server/storage/cleaner/swap.py",
        old="        _delete_replaced(fs, directory, set(logs), min(logs), max(ends))\n        fs.sync_directory(directory)\n",
        new="        _delete_replaced(fs, directory, set(logs), min(logs), max(ends))\n",
        tests=(f"{SWAP}::test_at_load_old_segments_are_gone_on_the_device_before_a_new_one_has_its_name",),
    ),
}

RECOVERY: Final = {
    "crc": Fault(
        why="Damaged batches are taken for good ones.",
        file="server/storage/recovery/salvage.py",
        old="        return self.crc(position, size) == crc\n",
        new="        return True\n",
        tests=("tests/server/storage/recovery/test_recovery.py::test_a_damaged_batch_costs_itself_and_nothing_else",),
    ),
    "batch-in-a-record": Fault(
        why="Behind a damage, a batch that someone keeps in a record's value becomes part of the log.",
        file="server/storage/recovery/salvage.py",
        old=" or (at < free_from and header.base_offset != next_offset):\n",
        new=":\n",
        tests=(f"{SALVAGE}::test_a_batch_in_a_record_is_not_taken_for_one_of_the_log_when_what_follows_is_damaged_too",),
    ),
    "tail-below-the-recovery-point": Fault(
        why="Acknowledged records at the damaged end of the log vanish without a trace and their offsets are given out again.",
        file="server/storage/recovery/recovery.py",
        old="        if end < promised <= end + INT32_MAX:\n",
        new="        if False:\n",
        tests=(
            "tests/server/storage/recovery/test_recovery.py::test_promised_offsets_at_the_end_are_a_gap_and_are_not_given_out_again",
        ),
    ),
    "gap-before-the-log-is-replaced": Fault(
        why="A power cut in between leaves a log without the batches and without the note that they are missing.",
        file="server/storage/recovery/quarantine.py",
        old="""    if gaps:
        write_gaps(fs, directory, merge_gaps([*read_gaps(fs, directory), *gaps]), durable=durable)
    leave_out(fs, log_path, damages, durable=durable)
""",
        new="""    leave_out(fs, log_path, damages, durable=durable)
    if gaps:
        write_gaps(fs, directory, merge_gaps([*read_gaps(fs, directory), *gaps]), durable=durable)
""",
        tests=("tests/server/storage/recovery/test_quarantine.py::test_a_power_cut_at_any_step_of_recovery_loses_nothing",),
    ),
    "indexes-before-the-log-is-replaced": Fault(
        why="A power cut leaves the indexes of the damaged log beside the repaired one: lookups land inside batches.",
        file="server/storage/recovery/quarantine.py",
        old="    if durable:\n        fs.sync_directory(directory)\n    fs.rename(temporary, log_path)\n",
        new="    fs.rename(temporary, log_path)\n",
        tests=("tests/server/storage/recovery/test_quarantine.py::test_indexes_are_gone_before_the_log_has_other_positions",),
    ),
    "tail-is-kept-before-it-is-cut": Fault(
        why="A power cut takes both the tail and its copy.",
        file="server/storage/recovery/quarantine.py",
        old='    if durable and file != NO_FILE:\n        fs.sync_directory(log_path.rpartition("/")[0])\n',
        tests=("tests/server/storage/recovery/test_quarantine.py::test_a_tail_is_kept_before_it_is_cut",),
    ),
    "recovered-is-synced": Fault(
        why="Recovered records are served and a second power cut takes them back.",
        file="server/storage/recovery/rebuild.py",
        old="                _sync(self.syncs, file.path)\n",
        new="                pass\n",
        tests=("tests/server/storage/recovery/test_recovery.py::test_all_that_was_scanned_is_synced_before_the_log_is_served",),
    ),
    "orphans-before-deleted": Fault(
        why="After a power cut during a deletion the partition is refused: an index tells of a log that is missing.",
        file="server/storage/recovery/load.py",
        old='    for name in left:\n        fs.unlink(f"{directory}/{name}")\n',
        tests=(f"{LOAD}::test_files_of_a_segment_that_is_on_its_way_out_tell_of_no_hole",),
    ),
    "renames-before-unlinks-at-load": Fault(
        why="A power cut during the start gives a file its old name back when the one before it is gone for good.",
        file="server/storage/recovery/load.py",
        old="    if any(name.endswith(DELETED_SUFFIX) for name in names):\n",
        new="    if False:\n",
        tests=(f"{LOAD}::test_no_file_of_a_deletion_is_unlinked_before_all_new_names_are_on_the_device",),
    ),
}

FAILED_SYNCS: Final = {
    "recovery-trusts-the-page-cache": Fault(
        why="What the device refused before a restart is served and acknowledged behind it, and a power cut takes it.",
        file="server/storage/recovery/recovery.py",
        old="        return self.request.was_clean or not self.durable\n",
        new="        return True\n",
        tests=("tests/server/storage/log/test_log_life.py::test_every_history_with_failed_syncs_keeps_what_it_promised",),
    ),
    "written-again-where-it-was": Fault(
        why="ext4 writes the page to its old place and leaves the extent unwritten: it reads as zeros after a power cut.",
        file="server/storage/disk/write_again.py",
        old="        fs.forget(fd, forget_from, stop if stop < end else None)\n",
        tests=("tests/server/storage/disk/test_diskops.py::test_bytes_written_and_synced_again_are_on_disk",),
    ),
    "folio-of-two-windows": Fault(
        why="A folio that two windows share is never forgotten: it is written where it was, and reads as zeros one day.",
        file="server/storage/disk/write_again.py",
        old="        held = content[-folio_bytes:]\n",
        new='        held = b""\n',
        tests=("tests/server/storage/disk/test_diskops.py::test_bytes_written_and_synced_again_are_on_disk",),
    ),
    "written-again-unseen": Fault(
        why="A page that the kernel has dropped is written again with what the device had, and counts as what it was.",
        file="server/storage/disk/write_again.py",
        old="        check_batch(piece[at : at + size], header)\n",
        tests=("tests/server/storage/disk/test_diskops.py::test_bytes_that_read_differently_are_lost_and_nothing_is_written",),
    ),
    "sync-after-a-failed-one": Fault(
        why="The kernel lets the next sync of a file succeed, and what it forgot counts as being on the device.",
        file="server/storage/disk/diskops.py",
        old="            file.failed_sync = exc.errno or errno.EIO\n",
        new="            pass\n",
        tests=(f"{DISKOPS}::test_after_a_failed_sync_of_a_file_none_counts_before_its_bytes_are_written_again",),
    ),
}

LOG_FAULTS: Final = {**PRODUCERS, **TRANSACTIONS, **READING, **TRUNCATION, **RETENTION, **CLEANER, **RECOVERY, **FAILED_SYNCS}
