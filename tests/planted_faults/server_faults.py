"""Faults in what the server does with its logs (acknowledging, deleting, coordinating, failing, copying), in what share groups
deliver and remember, in how topics are made and undone; and the oldest bugs of the changelog, put back."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

STORAGE: Final = "tests/server/storage"
TOPIC_CRASHES: Final = "tests/server/logs/test_topic_crashes.py"

JOINING: Final = "tests/server/embedded/test_joining.py"
JOINING_FAULTS: Final = {
    "fork-keeps-the-lock": Fault(
        why="A child that does nothing keeps a directory locked after the end of its parent: no process can serve it.",
        file="server/embedded/joining.py",
        old="    for lock in list(_LOCKS):\n        lock.close()\n",
        new="",
        tests=(f"{JOINING}::test_a_child_that_does_nothing_keeps_nothing_of_a_killed_parent",),
    ),
    "two-owners": Fault(
        why="Two processes take the socket of a directory from each other.",
        file="server/embedded/joining.py",
        old="        except BlockingIOError:\n            yield False\n",
        new="        except BlockingIOError:\n            yield True\n",
        tests=(f"{JOINING}::test_only_processes_of_the_user_can_connect",),
    ),
    "no-owner-until-a-call": Fault(
        why="Kafka clients of a shared directory find no listener until one of its processes happens to make a call.",
        file="server/embedded/joining.py",
        old="        await run()\n        is_done = False\n",
        new="        await run()\n        is_done = True\n",
        tests=(f"{JOINING}::test_another_process_becomes_the_owner_without_a_call",),
    ),
}

HTTP_PRODUCE: Final = "tests/server/listeners/http/test_produce.py"
HTTP_FAULTS: Final = {
    "http-streams-begin-again": Fault(
        why="A stream that is repeated with its key appends the records again that the log has.",
        file="server/listeners/http/produce.py",
        old="            if self._count <= self.known:\n",
        new="            if self._count < 0:\n",
        tests=(f"{HTTP_PRODUCE}::test_a_stream_with_a_key_continues_where_it_broke",),
    ),
    "http-keys-forget-their-bodies": Fault(
        why="Another body with a known key is taken for the one before, and its records are lost with an offset.",
        file="server/listeners/http/produce.py",
        old="hashlib.blake2b(body, digest_size=4)",
        new='hashlib.blake2b(b"", digest_size=4)',
        tests=(f"{HTTP_PRODUCE}::test_a_body_with_a_key_is_appended_once",),
    ),
    "http-without-rights": Fault(
        why="A user without the right to write to a topic appends to it over HTTP.",
        file="server/listeners/http/produce.py",
        old="        if security.authorizer is not None and not",
        new="        if False and not",
        tests=(f"{HTTP_PRODUCE}::test_users_log_in_with_basic_and_need_the_right_to_write",),
    ),
    "http-keys-push-producers-out": Fault(
        why="Keys of requests over HTTP fill the space of a partition's producers, and the next real producer is refused.",
        file="server/storage/producers/producer_state.py",
        old="                if len(keyed) > most:\n",
        new="                if len(keyed) < 0:\n",
        tests=("tests/server/storage/producers/test_keyed_producers.py::test_the_oldest_keys_go_and_other_producers_stay",),
    ),
}

REGISTRY: Final = "tests/server/registry"
REGISTRY_FAULTS: Final = {
    "registry-writes-without-looking": Fault(
        why="Two registries on one topic give one id to two schemas, and values are decoded with the wrong one.",
        file="server/registry/topic.py",
        old=", expected_offset=offset)",
        new=")",
        tests=(f"{REGISTRY}/test_topic.py::test_clients_that_register_at_once_never_share_an_id",),
    ),
    "registry-forgets-deleted-references": Fault(
        why="A new schema refers to one that was deleted, and nothing keeps that from being deleted permanently.",
        file="server/registry/compatibility.py",
        old="stored.is_deleted and reference in references and not may_be_deleted",
        new="stored.is_deleted and not references",
        tests=(f"{REGISTRY}/test_rest.py::test_a_schema_that_others_use_is_not_deleted",),
    ),
    "json-schema-proves-itself": Fault(
        why="A choice that contains itself accepts everything, so that any schema is compatible with it.",
        file="server/registry/formats/json_schema.py",
        old="return [] if self._depth > self._assumed[pair] else",
        new="return [] if True else",
        tests=(f"{REGISTRY}/formats/test_json_schema.py::test_the_table_of_rules",),
    ),
    "registry-without-rights": Fault(
        why="A user without rights on the topic of the schemas changes them over HTTP.",
        file="server/registry/rest.py",
        old="        client.check(route.right)\n",
        new="",
        tests=(f"{REGISTRY}/test_access.py::test_each_call_needs_its_right_and_no_other",),
    ),
}

TOKENS: Final = "tests/server/listeners/kafka/test_oauth.py"
TOKEN_FAULTS: Final = {
    "session-outlives-its-token": Fault(
        why="A user whose token was not renewed is served indefinitely.",
        file="server/listeners/access/login.py",
        old="self._finish(decision.rest_ms)",
        new="self._finish()",
        tests=(
            f"{TOKENS}::test_a_token_logs_its_user_in_until_it_expires",
            f"{TOKENS}::test_a_login_is_renewed_by_the_same_user_or_ends",
        ),
    ),
    "refused-token-is-followed-by-others": Fault(
        why="One connection tries tokens without end, and none of the tries is delayed.",
        file="server/listeners/access/login.py",
        old="            self._refusal = decision.refusal\n",
        new="",
        tests=(f"{TOKENS}::test_after_a_refusal_no_other_token_is_accepted_on_the_connection",),
    ),
    "audience-of-a-token-is-not-checked": Fault(
        why="A token that another service was given logs in here.",
        file="server/access/tokens.py",
        old='        self._check_audience(_texts(claims, "aud"))\n',
        new="",
        tests=("tests/server/access/test_tokens.py::test_a_token_without_the_claims_that_are_required_is_refused",),
    ),
    "unsecured-token-with-a-signature-is-accepted": Fault(
        why="An unverified token counts as unsecured.",
        file="server/access/tokens.py",
        old="return self.algorithm == UNSECURED and not self.signature",
        new="return self.algorithm == UNSECURED or bool(self.signature)",
        tests=(f"{TOKENS}::test_a_refused_token_is_kafkas_error_and_one_line_without_the_token",),
    ),
}
TOPIC_FAULTS: Final = {
    "creation-is-not-announced": Fault(
        why="What a killed server had made of a topic is adopted, and keeps for ever what its owner wanted compacted.",
        file="server/logs/topic_changes.py",
        old="            await self.directories.write_creations([*self._unfinished, creation])\n",
        new="            pass\n",
        tests=(f"{TOPIC_CRASHES}::test_a_change_cut_off_is_whole_or_absent_and_can_be_made_again",),
    ),
    "announcement-is-not-synced": Fault(
        why="The same after a power cut.",
        file="server/storage/directory/log_directory.py",
        old="encode_creations(self.topics_generation, creations), durable=self.durable)",
        new="encode_creations(self.topics_generation, creations), durable=False)",
        tests=(f"{TOPIC_CRASHES}::test_a_change_cut_off_is_whole_or_absent_and_can_be_made_again",),
    ),
    "undoing-is-forgotten-before-it-is-on-the-device": Fault(
        why="A power cut brings back what was removed, and now it is adopted.",
        file="server/storage/directory/catalogue.py",
        old="                directory.sync_names()\n            except OSError as exc:\n",
        new="            except OSError as exc:\n",
        tests=(f"{TOPIC_CRASHES}::test_a_start_that_undoes_or_completes_a_change_and_is_cut_off_itself_is_done_again",),
    ),
    "committed-offsets-go-by-name": Fault(
        why="A group goes on in a new topic where it was in a deleted one of that name, and never reads what lies before.",
        file="server/offsets/committed_offsets.py",
        old="        return value.topic_id not in (NO_TOPIC_ID, self._topic_id(topic_partition.topic))\n",
        new="        return False\n",
        tests=(
            "tests/server/logs/test_recreated_topics.py::test_committed_offsets_that_could_not_be_taken_back_are_not_inherited",
        ),
    ),
    "tombstones-go-by-name": Fault(
        why="A deletion takes back what a group has committed for the next topic of that name.",
        file="server/offsets/committed_offsets.py",
        old="            return known is None or (known != value.topic_id and not offsets.commits_under_way[key.group])\n",
        new="            return True\n",
        tests=("tests/server/logs/test_recreated_topics.py::test_a_deletion_takes_back_no_offset_of_the_topic_that_follows",),
    ),
    "staged-files-go-by-name": Fault(
        why="Records that were staged for a deleted topic are committed to another one.",
        file="server/stages/stage_files.py",
        old="{_digest(str(topic_partition) if topic_id is None else f'{topic_partition} {topic_id}')}",
        new="{_digest(str(topic_partition))}",
        tests=(
            "tests/server/logs/test_recreated_topics.py::test_records_staged_for_a_deleted_topic_are_not_committed_to_another",
        ),
    ),
    "log-start-of-a-file-that-can-go": Fault(
        why="A power cut takes the name of the first file, nothing says where the log began, and offsets are given twice.",
        file="server/logs/log_directories.py",
        old="    first = 0 if log.doomed or log.names_unsynced else log.segments.first.base_offset\n",
        new="    first = 0 if log.doomed else log.segments.first.base_offset\n",
        tests=(
            "tests/server/logs/test_recreated_topics.py::test_the_log_start_is_listed_as_long_as_a_power_cut_can_take_the_first_file",
        ),
    ),
    "log-without-segments-begins-anew": Fault(
        why="Offsets are given twice when a power cut has taken the name of a log's only segment.",
        file="server/storage/recovery/recovery.py",
        old="max(request.log_start_offset, known, self.epochs.start_offset)",
        new="request.log_start_offset",
        tests=("tests/server/logs/test_recreated_topics.py::test_a_log_without_segments_begins_where_any_file_says",),
    ),
    "undoing-deletes-records": Fault(
        why="A partition that somebody copied in while the server was down is deleted.",
        file="server/storage/directory/topics_file.py",
        old="    return topic_id in ids and is_another and holds_nothing(fs, path)\n",
        new="    return topic_id in ids and is_another\n",
        tests=(
            "tests/server/storage/directory/test_json_files.py::test_a_directory_that_holds_or_held_a_record_is_not_left_over",
            "tests/server/logs/test_topic_changes.py::test_partitions_with_records_are_adopted",
        ),
    ),
}


STAGE_COMMIT_CRASHES: Final = "tests/server/stages/test_stage_commit_crashes.py"
RECOVERY: Final = f"{STORAGE}/recovery/test_recovery.py"

OLDEST_FAULTS: Final = {
    "topics-file-unchecked": Fault(
        why="A flipped digit in topics.json is a topic's configuration, and deletes its records.",
        file="server/storage/directory/state_files.py",
        old="if (editable is None or found is not None) and found",
        new="if editable is None and found",
        tests=("tests/server/storage/directory/test_json_files.py::test_a_flipped_bit_is_noticed_wherever_it_is",),
    ),
    "end-of-a-clean-stop": Fault(
        why="Offsets of records that went with the end of a stopped log are given to other ones, and nobody is told.",
        file="server/storage/recovery/recovery.py",
        old="        if is_promised and log.log_end_offset < promised",
        new="        if promised < 0 and log.log_end_offset < promised",
        tests=(f"{RECOVERY}::test_offsets_that_a_clean_stop_promised_are_not_given_out_again",),
    ),
    "end-before-the-log-start": Fault(
        why="All that a log has is thrown away where its log start offset is behind it, be that right or not.",
        file="server/storage/recovery/recovery.py",
        old="            if segment.size\n        ]\n",
        new="            if segment.size < 0\n        ]\n",
        tests=(f"{RECOVERY}::test_a_log_that_ends_before_its_log_start_goes_on_empty_from_there_and_keeps_what_it_had",),
    ),
    "lost-in-the-middle-of-a-commit": Fault(
        why="What a power cut has taken out of the middle of a commit that is decided never comes.",
        file="server/stages/stage_appends.py",
        old="name=name) if found.lost else partition\n",
        new="name=name) if found.lost is None else partition\n",
        tests=(f"{STAGE_COMMIT_CRASHES}::test_what_a_crash_has_taken_out_of_the_middle_is_appended_behind_the_rest",),
    ),
    "newest-batch-on-the-device": Fault(
        why="Compaction takes what a power cut would leave of a producer: what it repeats then is new.",
        file="server/storage/cleaner/batch_filter.py",
        old="        if not header.is_control and self._is_last_on_device(header, last):\n            return True\n",
        tests=(
            "tests/server/storage/cleaner/test_clean.py::test_the_newest_batch_of_a_producer_that_no_power_cut_takes_stays_too",
        ),
    ),
}


STORAGE: Final = "tests/server/storage"
FLUSHER: Final = "tests/server/partitions/test_flusher.py"
PRODUCER_IDS: Final = "tests/server/transactions/test_transaction_states.py"
COMMITTED_OFFSETS: Final = "tests/server/offsets/test_committed_offsets.py"
TRANSACTION_COORDINATOR: Final = "tests/server/transactions/test_transaction_coordinator.py"
TRANSACTION_CRASHES: Final = "tests/server/transactions/test_transaction_coordinator.py"
LOG_DIRECTORIES: Final = "tests/server/logs/test_log_directories.py"
LOG_RETENTION: Final = "tests/server/logs/test_log_retention.py"
PARTITION: Final = "tests/server/partitions/test_partition.py"
ENDS_TESTS: Final = "tests/server/listeners/connections/test_session.py"
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
            "tests/server/storage/recovery/test_space_wait.py::test_appends_are_told_what_it_waits_for_and_the_recovery_point_stays",
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
    "converted-without-the-rest": Fault(
        why="A group that becomes classic forgets a partition that a member still reads. After the way back another has it.",
        file="server/groups/consumer/conversion.py",
        old="        assignment=assignment_bytes(member.held, classic, topics),\n",
        new="        assignment=assignment_bytes(member.assigned, classic, topics),\n",
        tests=(
            "tests/server/groups/consumer/test_classic_members.py::"
            "test_a_partition_that_a_member_is_giving_up_stays_its_own_over_both_conversions",
        ),
    ),
    "rebalance-forgotten": Fault(
        why="After a kill nobody reads the partitions of the member that left when the group became classic.",
        file="server/groups/consumer/conversion.py",
        old="        value.leader = None\n",
        new="        pass\n",
        tests=(
            "tests/server/groups/coordinators/test_consumer.py::"
            "test_a_group_that_has_become_classic_rebalances_after_a_stop_or_a_kill",
        ),
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
        tests=(f"{ENDS_TESTS}::test_a_connection_that_ends_in_any_phase_gives_everything_back",),
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
        file="server/loop/readiness.py",
        old="        return bool(events & _GONE) if events & (_LEFT | _GONE) else None\n",
        new="        return True if events & _GONE else None\n",
        tests=(f"{ATTACKS_TESTS}::test_peers_that_leave_parked_requests_behind_give_their_places_back",),
    ),
}

SERVER_FAULTS: Final = {**PARTITIONS, **DELETION, **COORDINATORS, **MEMBERS, **DIRECTORIES, **MEMORY}


SHARE_PARTITIONS: Final = "tests/server/sharing/test_partitions.py"

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
        tests=("tests/server/sharing/state/test_model.py::test_after_a_restart_offsets_that_are_not_stored_come_as_new",),
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
        tests=(
            "tests/server/sharing/state/test_model.py::test_records_given_back_come_in_smaller_pieces_until_they_are_archived",
        ),
    ),
    "aborted-is-delivered": Fault(
        why="A group that reads what is committed processes records of transactions that were aborted.",
        file="server/sharing/state/acquisition.py",
        old="        if aborted:\n            self._archive(aborted)\n",
        tests=("tests/server/sharing/state/test_model.py::test_records_of_aborted_transactions_nobody_gets",),
    ),
    "acknowledgement-half-taken": Fault(
        why="What a member says of records is refused, and some of them are given up all the same.",
        file="server/sharing/state/partition_state.py",
        old="        except RequestError:\n            self.roll_back(change)\n            raise\n",
        new="        except RequestError:\n            raise\n",
        tests=("tests/server/sharing/state/test_model.py::test_what_is_refused_in_part_has_not_happened",),
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
        tests=("tests/server/sharing/state/test_model.py::test_after_many_updates_comes_a_snapshot_that_says_the_same",),
    ),
}
