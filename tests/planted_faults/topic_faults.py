"""Faults in how topics are made, and undone when that was cut off."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

STORAGE: Final = "tests/server/storage"
RECREATED: Final = "tests/server/logs/test_recreated_topics.py"
LOST_NAMES: Final = "tests/server/logs/test_recreated_topics.py"
TOPIC_CRASHES: Final = "tests/server/logs/test_topic_crashes.py"

TOPIC_FAULTS: Final = {
    "creation-is-not-announced": Fault(
        why="What a killed server had made of a topic is adopted, and keeps for ever what its owner wanted compacted.",
        file="server/logs/topic_changes.py",
        old="            await self.directories.write_creations([*self._unfinished, creation])\n",
        new="            pass\n",
        tests=(f"{TOPIC_CRASHES}::test_a_change_that_is_cut_off_is_whole_or_absent_and_can_be_made_again",),
    ),
    "announcement-is-not-synced": Fault(
        why="The same after a power cut.",
        file="server/storage/directory/log_directory.py",
        old="encode_creations(self.topics_generation, creations), durable=self.durable)",
        new="encode_creations(self.topics_generation, creations), durable=False)",
        tests=(f"{TOPIC_CRASHES}::test_a_change_that_is_cut_off_is_whole_or_absent_and_can_be_made_again",),
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
        tests=(f"{RECREATED}::test_committed_offsets_that_could_not_be_taken_back_are_not_inherited",),
    ),
    "tombstones-go-by-name": Fault(
        why="A deletion takes back what a group has committed for the next topic of that name.",
        file="server/offsets/committed_offsets.py",
        old="            return known is None or (known != value.topic_id and not offsets.commits_under_way[key.group])\n",
        new="            return True\n",
        tests=(f"{RECREATED}::test_a_deletion_takes_back_no_offset_of_the_topic_that_follows",),
    ),
    "staged-files-go-by-name": Fault(
        why="Records that were staged for a deleted topic are committed to another one.",
        file="server/stages/stage_files.py",
        old="{_digest(str(topic_partition) if topic_id is None else f'{topic_partition} {topic_id}')}",
        new="{_digest(str(topic_partition))}",
        tests=(f"{RECREATED}::test_records_that_were_staged_for_a_deleted_topic_are_not_committed_to_another",),
    ),
    "log-start-of-a-file-that-can-go": Fault(
        why="A power cut takes the name of the first file, nothing says where the log began, and offsets are given twice.",
        file="server/logs/log_directories.py",
        old="    first = 0 if log.doomed or log.names_unsynced else log.segments.first.base_offset\n",
        new="    first = 0 if log.doomed else log.segments.first.base_offset\n",
        tests=(f"{LOST_NAMES}::test_the_log_start_is_listed_as_long_as_a_power_cut_can_take_the_first_file",),
    ),
    "log-without-segments-begins-anew": Fault(
        why="Offsets are given twice when a power cut has taken the name of a log's only segment.",
        file="server/storage/recovery/recovery.py",
        old="max(request.log_start_offset, known, self.epochs.start_offset)",
        new="request.log_start_offset",
        tests=(f"{LOST_NAMES}::test_a_log_without_segments_begins_where_any_file_says",),
    ),
    "undoing-deletes-records": Fault(
        why="A partition that somebody copied in while the server was down is deleted.",
        file="server/storage/directory/topics_file.py",
        old="    return topic_id in ids and is_another and holds_nothing(fs, path)\n",
        new="    return topic_id in ids and is_another\n",
        tests=(
            f"{STORAGE}/server/storage/directory/test_json_files.py::test_a_directory_that_holds_or_held_a_record_is_not_left_over",
            "tests/server/logs/test_topic_changes.py::test_partitions_with_records_are_adopted",
        ),
    ),
}
