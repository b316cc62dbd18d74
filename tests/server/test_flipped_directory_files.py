"""Each bit and byte of the small files of a log directory flipped, each of them cut at each of its bytes, under a whole start.
The start serves everything, or refuses with an error that names the file and what to do; then the stop before it counts as
clean as it did, and with the file put right the next one serves everything. No byte of a log is lost. Damages that a file's
reader cannot tell apart are one case: of each there is one start, and a few more to see that it is so. The small files of a
partition are in `storage/recovery/test_damage.py`."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.server.storage.directory import state_files, topics_file
from triolog.server.storage.directory.state_files import BROKERS
from triolog.server.storage.directory.topics_file import TOPICS_FILE, decode_deleted_topic_ids, decode_topics
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.checkpoints import PRODUCER_ID_BLOCK_FILE, decode_producer_id_block
from triolog.server.storage.errors import CheckpointError

from tests.support import counts, crash_fs, flipped_files

READERS: Final[dict[str, Callable[[str, bytes], Any]]] = {
    TOPICS_FILE: lambda path, data: (decode_topics(path, data), decode_deleted_topic_ids(path, data)),
    topics_file.CREATIONS_FILE: topics_file.decode_creations,
    state_files.SECURITY_FILE: state_files.decode_security,
    state_files.GROUPS.name: state_files.GROUPS.decode,
    BROKERS.name: BROKERS.decode,
    state_files.CLIENT_METRICS.name: state_files.CLIENT_METRICS.decode,
    checkpoints.META_PROPERTIES_FILE: checkpoints.decode_meta_properties,
    PRODUCER_ID_BLOCK_FILE: decode_producer_id_block,
    checkpoints.RECOVERY_POINT_FILE: checkpoints.decode_offsets,
    checkpoints.HIGH_WATERMARK_FILE: checkpoints.decode_offsets,
    checkpoints.LOG_START_FILE: checkpoints.decode_offsets,
    checkpoints.CLEAN_SHUTDOWN_FILE: lambda path, data: checkpoints.decode_clean_shutdown(data),
}
"""What a start does with the content of each file."""
COMMIT_STARTS: Final = 5
MERGE_STARTS: Final = 12
MORE_STARTS: Final = 20
"""Of damages that are like others, in the long tier."""
REMEDY: Final = re.compile("copy|put .* back|delete|write|correct|move", re.IGNORECASE)


@pytest.fixture(scope="module")
def store() -> Iterator[flipped_files.Store]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield trio.run(flipped_files.Store.make, Path(folder))


def cases(path: str, content: bytes, read: Callable[[str, bytes], Any]) -> list[tuple[str, bytes]]:
    """A damage of each kind that the reader can tell, a few of the others; before the long tier a few of all of them."""
    firsts: dict[str, tuple[str, bytes]] = {}
    others: list[tuple[str, bytes]] = []
    for damage in flipped_files.damages(content):
        try:
            found = repr(read(path, damage[1]))
        except CheckpointError:
            found = "refused"
        if found in firsts:
            others.append(damage)
        else:
            firsts[found] = damage
    choice = counts.draws(len(content))
    if counts.tier() == counts.LONG:
        return [*firsts.values(), *choice.sample(others, min(len(others), MORE_STARTS))]
    every = list(firsts.values())
    starts = counts.by_tier(commit=COMMIT_STARTS, merge=MERGE_STARTS, long=0)
    return [*choice.sample(every, min(len(every), starts - 1)), *choice.sample(others, min(len(others), 1))]


def check_logged(records: Sequence[logging.LogRecord], case: str) -> None:
    """Nothing unforeseen was met."""
    assert not [record.getMessage() for record in records if record.exc_info], case


@pytest.mark.merge
@pytest.mark.parametrize("directory", [0, 1])
@pytest.mark.parametrize("name", READERS)
async def test_a_start_with_a_damaged_file_serves_everything_or_names_it(
    store: flipped_files.Store, caplog: pytest.LogCaptureFixture, name: str, directory: int
) -> None:
    path = f"{store.paths[directory]}/{name}"
    content, logs = store.fs.content(path), crash_fs.logs_of(store.fs)
    chosen = cases(path, content, READERS[name])
    for number, (damage, damaged) in enumerate(chosen):
        if counts.tier() == counts.LONG and number % 2 != directory and len(chosen) > 2:
            continue  # the other directory has it
        case = f"{name} {damage}: {damaged!r}"
        caplog.clear()
        fs = flipped_files.with_file(store.fs, path, damaged)
        outcome, found = await store.start(fs)
        check_logged(caplog.records, case)
        assert crash_fs.logs_of(fs) == logs, case
        assert outcome is not flipped_files.Outcome.PART, f"{case}: {found}\n{caplog.text}"
        if outcome is flipped_files.Outcome.REFUSED:
            assert path in str(found), f"{case}: {found}"
            assert REMEDY.search(str(found)), f"{case}: {found}"
            assert all(fs.content(f"{each}/{checkpoints.CLEAN_SHUTDOWN_FILE}") for each in store.paths), case
            crash_fs.put(fs, path, content)
            assert (await store.start(fs))[0] is flipped_files.Outcome.WHOLE, case


async def test_damaged_partition_metadata_is_named_and_alone(
    store: flipped_files.Store, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{store.paths[0]}/{flipped_files.PLAIN[0]}/{checkpoints.PARTITION_METADATA_FILE}"
    content, logs = store.fs.content(path), crash_fs.logs_of(store.fs)
    for damage, damaged in cases(path, content, checkpoints.decode_partition_metadata):
        case = f"{damage}: {damaged!r}"
        caplog.clear()
        fs = flipped_files.with_file(store.fs, path, damaged)
        outcome, found = await store.start(fs)
        check_logged(caplog.records, case)
        assert crash_fs.logs_of(fs) == logs, case
        if outcome is flipped_files.Outcome.WHOLE:
            continue
        assert isinstance(found, flipped_files.Content), f"{case}: {found}"
        assert path in str(found.records[flipped_files.PLAIN[0]]), case
        expected = {**store.content.records, flipped_files.PLAIN[0]: found.records[flipped_files.PLAIN[0]]}
        assert found == flipped_files.Content(expected, store.content.others), case
        crash_fs.put(fs, path, content)
        assert (await store.start(fs))[0] is flipped_files.Outcome.WHOLE, case
