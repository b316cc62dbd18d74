"""Faults in what the server does with its logs: acknowledging, deleting, coordinating, failing, copying."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

STORAGE: Final = "tests/server/storage"
FLUSHER: Final = "tests/server/partitions/test_flusher.py"
PRODUCER_IDS: Final = "tests/server/transactions/test_producer_ids.py"
COMMITTED_OFFSETS: Final = "tests/server/offsets/test_committed_offsets.py"
TRANSACTION_COORDINATOR: Final = "tests/server/transactions/test_transaction_coordinator.py"
TRANSACTION_CRASHES: Final = "tests/server/transactions/test_transaction_crashes.py"
LOG_DIRECTORIES: Final = "tests/server/logs/test_log_directories.py"
LOG_RETENTION: Final = "tests/server/logs/test_log_retention.py"
PARTITION: Final = "tests/server/partitions/test_partition.py"
ATTACKS_TESTS: Final = "tests/server/listeners/connections/test_attacks.py"
BUDGET_TESTS: Final = "tests/server/listeners/connections/test_budget.py"
RETENTION: Final = f"{STORAGE}/log/test_retention.py"

PARTITIONS: Final = {
    "answer-before-the-sync": Fault(
        why="An append with acks=all is acknowledged while a power cut can still take it.",
        file="server/partitions/appender.py",
        old="                if append.acks != ACKS_ALL:\n",
        new="                if append.acks:\n",
        tests=(f"{PARTITION}::test_fsync_answers_acks_one_after_the_write_and_shows_it_after_the_sync",),
    ),
    "failed-sync": Fault(
        why="The kernel has forgotten what it could not write; a second sync that succeeds says nothing.",
        file="server/partitions/appender.py",
        old="        if is_final(cause):\n",
        new="        if False:\n",
        tests=(f"{PARTITION}::test_a_failed_sync_takes_its_log_offline",),
    ),
    "failed-write-is-taken-back": Fault(
        why="Half a batch stays in the middle of the log.",
        file="server/partitions/appender.py",
        old="                await self.disk.run(abort_append(plan), [plan.segment.log])\n",
        new="                pass\n",
        tests=(f"{PARTITION}::test_a_full_disk_in_the_middle_of_a_write_leaves_nothing[fsync]",),
    ),
    "sync-beside-a-sync": Fault(
        why="The kernel tells a failure to one sync of a descriptor; the other one acknowledges what is lost.",
        file="server/partitions/appender.py",
        old="await (self.flusher.run_alone(plan) if plan.sync else self.disk.run(plan.operations, plan.files))",
        new="await self.disk.run(plan.operations, plan.files)",
        tests=(f"{FLUSHER}::test_a_sync_of_a_group_waits_for_a_flush_beside_it_and_fails_with_it",),
    ),
    "no-room-is-final": Fault(
        why="A thin volume that is full for a moment takes every log offline until a restart.",
        file="server/storage/errors.py",
        old="        return is_out_of_space(self)\n",
        new="        return False\n",
        tests=(f"{FLUSHER}::test_an_append_whose_sync_has_no_space_is_refused_only",),
    ),
    "stage-synced-twice": Fault(
        why="A commit is decided on staged files of which a sync has failed before; a power cut takes them.",
        file="server/stages/stage_commit_log.py",
        old="                file.is_doubtful = True\n",
        new="                pass\n",
        tests=("tests/server/stages/test_stage_commits.py::test_a_file_whose_sync_failed_is_written_again[False]",),
    ),
}

DELETION: Final = {
    "checkpoint-before-the-renames": Fault(
        why="A power cut leaves a hole at the start of the log that nothing explains.",
        file="server/logs/log_retention.py",
        old="        has_checkpoint = await self._has_checkpoint(list({id(each.directory)",
        new="        has_checkpoint = bool(list({id(each.directory)",
        tests=(f"{LOG_RETENTION}::test_the_checkpoint_is_on_the_device_before_the_first_file_is_renamed",),
    ),
    "next-segment-before-the-last-is-gone": Fault(
        why="Without a checkpoint a power cut leaves a hole at the start of the log that nothing explains.",
        file="server/storage/log/retention.py",
        old="            if number == 0 and durable and not doomed.is_renamed:",
        new="            if number < 0 and durable and not doomed.is_renamed:",
        tests=(
            f"{RETENTION}::test_without_a_checkpoint_a_power_cut_at_any_moment_leaves_a_log_that_starts_further_up_and_has_no_hole",
        ),
    ),
    "recovery-point-of-a-log-in-memory": Fault(
        why="The next start trusts indexes that were in memory only.",
        file="server/logs/waiting_logs.py",
        old="    log.recovery_point = max(",
        new="    log.recovery_point += 0 * max(",
        tests=(
            f"{STORAGE}/recovery/test_space_wait.py::test_appends_are_told_what_it_waits_for_and_the_recovery_point_stays",
            "tests/server/logs/test_waiting_logs.py::test_a_waiting_log_is_read_and_refuses_writes",
        ),
    ),
    "log-start-while-files-can-come-back": Fault(
        why="A power cut gives files their old names back, and nothing says that their records were deleted.",
        file="server/logs/log_directories.py",
        old="    first = 0 if log.doomed or log.names_unsynced else log.segments.first.base_offset\n",
        new="    first = 0 if log.names_unsynced else log.segments.first.base_offset\n",
        tests=(f"{LOG_RETENTION}::test_the_log_start_is_listed_as_long_as_older_files_could_come_back",),
    ),
    "renames-before-unlinks": Fault(
        why="A power cut gives a file its old name back when the one before it is gone for good: a hole in the log.",
        file="server/logs/log_retention.py",
        old="            await self.disk.call(self.disk.fs.sync_directory, log.directory, at=log.directory)\n",
        new="            pass\n",
        tests=(f"{LOG_RETENTION}::test_no_file_is_unlinked_before_all_new_names_are_on_the_device",),
    ),
    "delete-records-on-the-device": Fault(
        why="Records that someone had to delete are back after a crash.",
        file="server/logs/log_retention.py",
        old="                await self.directories.write_checkpoints([of_directory[0][1].directory])\n",
        new="                pass\n",
        tests=(f"{LOG_RETENTION}::test_deleted_records_stay_deleted_after_a_crash",),
    ),
}

COORDINATORS: Final = {
    "decision-before-markers": Fault(
        why="A crash leaves a transaction committed in one partition that is aborted in the others at the next start.",
        file="server/transactions/transaction_coordinator.py",
        old="            await self.ids.store(owner, decided)\n",
        new="            owner.value = decided\n",
        tests=(f"{TRANSACTION_CRASHES}::test_a_transaction_cut_off_anywhere_is_whole_or_absent[commit-killed]",),
    ),
    "markers-before-completion": Fault(
        why="A crash leaves a partition without its marker that nobody ever writes: its committed readers wait for ever.",
        file="server/transactions/transaction_coordinator.py",
        old="""        await self._write_markers(owner, owner.value)
        await self.ids.store(owner, completed(owner.value, now_ms=self._now_ms()))
""",
        new="""        decided = owner.value
        await self.ids.store(owner, completed(owner.value, now_ms=self._now_ms()))
        await self._write_markers(owner, decided)
""",
        tests=(f"{TRANSACTION_CRASHES}::test_a_transaction_cut_off_anywhere_is_whole_or_absent[commit-killed]",),
    ),
    "partition-before-its-data": Fault(
        why="After a crash nobody knows that the partition has records of the transaction: it gets no marker.",
        file="server/transactions/transaction_coordinator.py",
        old="                        await self.ids.store(owner, after)\n",
        new="                        owner.value = after\n",
        tests=(
            f"{TRANSACTION_COORDINATOR}::test_a_partition_has_joined_before_its_first_batch_is_appended",
            f"{TRANSACTION_CRASHES}::test_a_transaction_cut_off_anywhere_is_whole_or_absent[commit-killed]",
        ),
    ),
    "pending-offsets": Fault(
        why="A group goes on from offsets of a transaction that is aborted: its records are never processed.",
        file="server/offsets/group_offsets.py",
        old="        elif producer_id != NO_PRODUCER_ID:\n",
        new="        elif False:\n",
        tests=(f"{COMMITTED_OFFSETS}::test_offsets_in_a_transaction_count_when_it_commits_and_never_when_it_aborts",),
    ),
    "pending-offset-over-a-later-one": Fault(
        why="A group falls back to the offset of a transaction although it has committed a later one since.",
        file="server/offsets/group_offsets.py",
        old="            if commit and (current is None or current.record_offset < pending.record_offset):\n",
        new="            if commit:\n",
        tests=(f"{COMMITTED_OFFSETS}::test_a_commit_outside_that_came_later_wins_over_the_transactions",),
    ),
    "producer-ids-before-their-use": Fault(
        why="After a crash a second producer gets the id of the first: its records are taken for duplicates.",
        file="server/transactions/transactional_ids.py",
        old="write_producer_id_block(disk.fs, each.path, first + BLOCK_IDS, ",
        new="write_producer_id_block(disk.fs, each.path, first, ",
        tests=(
            f"{PRODUCER_IDS}::test_a_restart_gives_out_no_id_again",
            f"{PRODUCER_IDS}::test_after_a_crash_no_id_is_given_out_again",
        ),
    ),
}

DIRECTORIES: Final = {
    "failed-directory": Fault(
        why="Partitions of a directory that cannot be written go on accepting records.",
        file="server/logs/log_directories.py",
        old="            if hosted.directory is directory:\n                hosted.actor.take_offline(",
        new="            if False:\n                hosted.actor.take_offline(",
        tests=(f"{LOG_DIRECTORIES}::test_a_directory_whose_checkpoints_fail_is_taken_out_with_its_partitions",),
    ),
    "passing-error": Fault(
        why="A full disk takes a directory out of service until the next start.",
        file="server/logs/log_directories.py",
        old="            if is_passing(exc):\n                return exc\n",
        tests=(f"{LOG_DIRECTORIES}::test_a_full_disk_takes_nothing_out_of_service",),
    ),
    "backup-order": Fault(
        why="A committed offset in the copy lies behind the end of its log: the group passes what is produced next over.",
        file="server/offline/backup.py",
        old="(not is_internal(files.topic_partition.topic), files.path)",
        new="(is_internal(files.topic_partition.topic), files.path)",
        tests=("tests/server/offline/test_backup.py::test_internal_topics_are_noted_before_the_others",),
    ),
    "backup-of-producer-ids": Fault(
        why="Ids that the copied logs hold are given out a second time where the copy is served.",
        file="server/offline/backup.py",
        old="    small |= {name: data for name, data in _small_files(fs, source) if name == PRODUCER_ID_BLOCK_FILE}\n",
        tests=("tests/server/offline/test_backup.py::test_producer_ids_are_noted_behind_the_logs",),
    ),
}

MEMBERS: Final = {
    "given-before-it-is-let-go": Fault(
        why="Two members read the same partition, and commit over each other.",
        file="server/groups/consumer/member.py",
        old="        taken = frozenset(partition for partition in target - kept if is_taken(partition))\n",
        new="        taken: Partitions = NO_PARTITIONS\n",
        tests=("tests/server/groups/consumer/test_groups.py::test_a_partition_moves_only_when_its_owner_reports_without_it",),
    ),
    "silence-is-consent": Fault(
        why="A member that says nothing of its partitions still reads them.",
        file="server/groups/consumer/member.py",
        old="    return owned is None or not owned.isdisjoint(partitions)\n",
        new="    return owned is not None and not owned.isdisjoint(partitions)\n",
        tests=("tests/server/groups/consumer/test_groups.py::test_a_partition_moves_only_when_its_owner_reports_without_it",),
    ),
    "member-before-its-record": Fault(
        why="After a crash nobody knows a member that was told that it is one, and what it has is given to another.",
        file="server/groups/coordinators/assigned.py",
        old="            await self._store(plan, lambda: self._commit(plan), replaces_classic=replaces_classic)\n",
        new="            self._commit(plan)\n"
        "            await self._store(plan, lambda: None, replaces_classic=replaces_classic)\n",
        tests=("tests/server/groups/coordinators/test_assigned.py::test_a_member_exists_once_it_is_on_the_device",),
    ),
}

MEMORY: Final = {
    "parked-request-keeps-its-frame": Fault(
        why="Three fetches with padding freeze all requests for as long as they wait.",
        file="server/listeners/kafka/session.py",
        old="        returned = max(0, turn.held_bytes - kept_bytes)\n",
        new="        returned = 0\n",
        tests=(f"{ATTACKS_TESTS}::test_parked_fetches_with_padding_keep_none_of_it_and_hold_up_nobody",),
    ),
    "memory-of-a-peer-that-left": Fault(
        why="What a peer held that went away in the middle of a frame is never free again.",
        file="server/listeners/connections/budget.py",
        old="        if self.ahead is not share:\n            self.used -= size\n",
        new="        if self.ahead is not share:\n            self.used -= size if share.charged else 0\n",
        tests=(f"{ATTACKS_TESTS}::test_what_a_peer_held_returns_when_it_goes",),
    ),
    "nobody-goes-on-outside": Fault(
        why="Frames that are not whole fill the memory, and each waits for the others for ever.",
        file="server/listeners/connections/budget.py",
        old="        if self.ahead is not None:\n            return False\n",
        new="        if self.ahead is not None or self.used:\n            return False\n",
        tests=(f"{BUDGET_TESTS}::test_random_peers_get_their_answers_and_accounts_balance",),
    ),
    "outside-one-account-and-waiting-for-another": Fault(
        why="Two frames each go on outside one account and wait for the other one's: nobody is answered any more.",
        file="server/listeners/connections/budget.py",
        old="        return (broker,) if broker.ahead is self else self.accounts\n",
        new="        return self.accounts if broker else ()\n",
        tests=(f"{BUDGET_TESTS}::test_random_peers_get_their_answers_and_accounts_balance",),
    ),
    "everybody-goes-on-outside": Fault(
        why="A frame that is answered lets its connection go on beyond the limit, and then the next one: memory has no limit.",
        file="server/listeners/connections/budget.py",
        old="            return not share.is_whole\n",
        new="            return True\n",
        tests=(f"{BUDGET_TESTS}::test_the_one_that_goes_on_outside_goes_on_for_one_frame",),
    ),
    "departure-unseen": Fault(
        why="A peer that left keeps its connection for as long as its fetch wanted to wait.",
        file="server/loop/reactor.py",
        old="        if events & _LEFT:\n",
        new="        if events & select.EPOLLHUP:\n",
        tests=(f"{ATTACKS_TESTS}::test_peers_that_leave_parked_requests_behind_give_their_places_back",),
    ),
}

SERVER_FAULTS: Final = {**PARTITIONS, **DELETION, **COORDINATORS, **MEMBERS, **DIRECTORIES, **MEMORY}
