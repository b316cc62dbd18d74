"""Repairing a stopped log directory: every damaged partition, which is checked again then, and the files of the directory.

| damage | what is done |
|---|---|
| a partition | see `repair` |
| a compaction that was cut off at its swap | is completed, as when a server starts |
| an offset checkpoint that cannot be read | made anew; logs that were not closed are scanned, log start offsets are lost |
| an offset behind the log's end | set to the log's end |
| `topics-in-creation.json` that cannot be read | emptied: unfinished topics get the default configuration |
| a state file (`STATES`) that cannot be read | the copy from before the last change, if any |

Left to people: `meta.properties` and `producer-id-block` that cannot be read, state files without such a copy,
directories that are no partition's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from ...protocol.errors import TriologError
from ...protocol.types import TopicPartition
from ..config import LogConfig
from ..storage.cleaner.swap import complete_swaps
from ..storage.directory.inventory import PartitionFiles, StoppedDirectory, read_partition
from ..storage.directory.state_files import BROKERS, CLIENT_METRICS, GROUPS, SECURITY_FILE, decode_security, read_previous
from ..storage.directory.topics_file import CREATIONS_FILE, TOPICS_FILE, decode_topics, encode_creations
from ..storage.disk.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_offsets,
    maybe_read,
)
from ..storage.disk.filesystem import FileSystem
from ..storage.errors import CheckpointError
from ..system.clock import NowMs, system_now_ms
from .findings import Collector, Finding, Observer
from .repair import Action, Workshop, repair_partition
from .verify import DirectorySays, check_partition, is_swapping, read_directory_files

STATES: Final[Mapping[str, Callable[[str, bytes], object]]] = {
    TOPICS_FILE: decode_topics,
    SECURITY_FILE: decode_security,
    GROUPS.name: GROUPS.decode,
    CLIENT_METRICS.name: CLIENT_METRICS.decode,
    BROKERS.name: BROKERS.decode,
}
"""Files of which a copy from before the last change is kept, and how each is read."""
_OFFSET_FILES: Final = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_OFFSET_FILE)


@attrs.frozen(kw_only=True)
class RepairSummary:
    """The result of a repair."""

    damages: int
    """Found before."""
    actions: tuple[Action, ...]
    left: tuple[Finding, ...]
    """Damage that is still there; in a dry run what nothing would be done about."""


def topic_config(says: DirectorySays, topic: str) -> LogConfig:
    """The configuration of a topic as `topics.json` overrides Kafka's defaults; the defaults where that cannot be read."""
    entry = says.topics.get(topic)
    try:
        return LogConfig() if entry is None else LogConfig().overlay(entry.configs, lenient=True)
    except ValueError:
        return LogConfig()


def repair_directory(
    fs: FileSystem,
    directory: StoppedDirectory,
    observer: Observer,
    *,
    dry_run: bool,
    acted: Callable[[Action], None],
    now_ms: NowMs = system_now_ms,
) -> RepairSummary:
    """Repair what is damaged. `observer` is told of the checks before, `acted` of each action. Raises OSError."""
    actions: list[Action] = []

    def tell(action: Action) -> None:
        actions.append(action)
        acted(action)

    return _Repair(fs, directory, observer, Workshop(fs, tell, now_ms, dry_run=dry_run), actions).run()


@attrs.define(eq=False, repr=False)
class _Repair:
    """The repair of one directory."""

    _fs: FileSystem
    _directory: StoppedDirectory
    _observer: Observer
    _workshop: Workshop
    _actions: list[Action]
    """The actions that the workshop reported."""
    _left: list[Finding] = attrs.field(factory=list)
    _damages: int = 0
    _ends: dict[TopicPartition, int] = attrs.field(factory=dict)
    _topic_ids: dict[str, uuid.UUID] = attrs.field(factory=dict)

    def run(self) -> RepairSummary:
        own = Collector(self._observer)
        says = read_directory_files(self._fs, self._directory, own)
        self._damages += len(own.damages)
        restored = self._restore_states(own.damages)
        if restored and not self._workshop.dry_run:
            says = read_directory_files(self._fs, self._directory, Observer())
        for files in self._directory.partitions:
            self._partition(files, says)
        self._checkpoints(own, says)
        self._left += [
            finding for finding in own.damages if not finding.file.endswith(_OFFSET_FILES) and finding.file not in restored
        ]
        return RepairSummary(damages=self._damages, actions=tuple(self._actions), left=tuple(self._left))

    def _restore_states(self, damages: Sequence[Finding]) -> set[str]:
        """Return to the copies of state files that cannot be read, and empty the list of what was being made; return the paths
        of the files that this repairs."""
        restored = set()
        for path in dict.fromkeys(finding.file for finding in damages):
            name = path.rpartition("/")[2]
            if name == CREATIONS_FILE:
                self._workshop.rewrite(path, encode_creations(0, []), "emptied. Check the configuration of topics without one")
                restored.add(path)
            data = read_previous(self._fs, path, STATES[name]) if name in STATES else None
            if data is not None:
                text = "restored from before the last change. Make that change again"
                self._workshop.rewrite(path, data, text, private=name == SECURITY_FILE)
                restored.add(path)
        return restored

    def _partition(self, files: PartitionFiles, says: DirectorySays) -> None:
        topic_partition = files.topic_partition
        if is_swapping(files):
            self._workshop.tell("complete", files.path, "a compaction that was cut off while it replaced segments")
            try:
                if not self._workshop.dry_run:
                    complete_swaps(self._fs, files.path)
            except TriologError as exc:
                self._workshop.tell("left", files.path, f"the compaction cannot be completed: {exc}")
                return
            files = read_partition(self._fs, files.path)
        known = says.of(topic_partition, self._topic_ids.get(topic_partition.topic))
        seen = Collector(self._observer)
        summary = check_partition(self._fs, files, known, seen)
        if summary.topic_id is not None:
            self._topic_ids.setdefault(topic_partition.topic, summary.topic_id)
        self._ends[topic_partition] = summary.log_end_offset
        if not seen.damages:
            return
        self._damages += len(seen.damages)
        config = topic_config(says, topic_partition.topic)
        end_offset = repair_partition(self._workshop, files, known, config, seen.findings)
        self._ends[topic_partition] = end_offset
        if self._workshop.dry_run:
            return
        again = Collector()
        known = attrs.evolve(
            known,
            log_start_offset=_clamped(known.log_start_offset, end_offset),
            recovery_point=_clamped(known.recovery_point, end_offset),
            high_watermark=_clamped(known.high_watermark, end_offset),
        )
        check_partition(self._fs, read_partition(self._fs, files.path), known, again)
        self._left += again.damages

    def _checkpoints(self, own: Collector, says: DirectorySays) -> None:
        """The clamped offsets of the partitions that are here; what is said of others stays."""
        rebuilt: Mapping[str, Mapping[TopicPartition, int]] = {
            RECOVERY_POINT_FILE: self._ends if says.was_clean else dict.fromkeys(self._ends, 0),
            HIGH_WATERMARK_FILE: self._ends,
            LOG_START_FILE: {},
            CLEANER_OFFSET_FILE: {},
        }
        for name in _OFFSET_FILES:
            path = f"{self._directory.path}/{name}"
            try:
                offsets = maybe_read(self._fs, path, decode_offsets)
            except (CheckpointError, ValueError):
                self._workshop.rewrite(path, encode_offsets(rebuilt[name]), f"{len(rebuilt[name])} partitions, from their logs")
                continue
            if offsets is None:
                continue
            true = {tp: min(max(offset, 0), self._ends.get(tp, offset)) for tp, offset in offsets.items()}
            if true != offsets or any(finding.file == path for finding in own.damages):
                changed = sum(true[tp] != offsets[tp] for tp in offsets)
                self._workshop.rewrite(path, encode_offsets(true), f"{changed} offsets set to the end of their logs")


def _clamped(offset: int | None, end_offset: int) -> int | None:
    return None if offset is None else min(offset, end_offset)
