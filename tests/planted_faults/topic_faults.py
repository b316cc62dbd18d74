"""Faults in how topics are made, and undone when that was cut off."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

STORAGE: Final = "tests/server/storage"
ACTORS: Final = "tests/server/actors"
TOPIC_CRASHES: Final = f"{ACTORS}/manager/test_topic_crashes.py"

TOPIC_FAULTS: Final = {
    "creation-is-not-announced": Fault(
        why="What a killed server had made of a topic is adopted, and keeps for ever what its owner wanted compacted.",
        file="server/actors/manager/topic_changes.py",
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
    "undoing-deletes-records": Fault(
        why="A partition that somebody copied in while the server was down is deleted.",
        file="server/storage/directory/creations_file.py",
        old="    return topic_id in ids and is_another and holds_nothing(fs, path)\n",
        new="    return topic_id in ids and is_another\n",
        tests=(
            f"{STORAGE}/directory/test_creations_file.py::test_a_directory_that_holds_or_held_a_record_is_not_left_over",
            f"{ACTORS}/manager/test_topic_changes.py::test_partitions_with_records_are_adopted",
        ),
    ),
}
