"""The oldest bugs of the changelog that the server had, put back."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

STORAGE: Final = "tests/server/storage"
STAGE_COMMIT_CRASHES: Final = "tests/server/stages/test_stage_commit_crashes.py"
RECOVERY: Final = f"{STORAGE}/recovery/test_recovery.py"

OLDEST_FAULTS: Final = {
    "topics-file-unchecked": Fault(
        why="A flipped digit in topics.json is a topic's configuration, and deletes its records.",
        file="server/storage/directory/state_files.py",
        old="if (editable is None or found is not None) and found",
        new="if editable is None and found",
        tests=(f"{STORAGE}/server/storage/directory/test_json_files.py::test_a_flipped_bit_is_noticed_wherever_it_is",),
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
        tests=(f"{STORAGE}/server/storage/cleaner/test_clean.py::test_the_newest_batch_of_a_producer_that_no_power_cut_takes_stays_too",),
    ),
}
