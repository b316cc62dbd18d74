"""`triolog compact`: compact a topic of a stopped log directory now, all of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import attrs
import click

from .terminal.failures import FailedError
from .terminal.findings import Warnings
from .terminal.output import count_text, json_option, print_json, printable, say, size_text
from .terminal.progress import open_progress
from .terminal.shapes import Sum, fields
from .terminal.stopped import directory_argument, stopped

if TYPE_CHECKING:
    from ...server.offline.compact_directory import CompactedPartition, CompactionOptions
    from ...server.offline.verify import DirectorySays
    from ...server.storage.directory.inventory import StoppedDirectory
    from ...server.storage.disk.filesystem import FileSystem

MIB: Final = 1 << 20


@click.command
@directory_argument
@click.option("--topic", required=True, metavar="NAME", help="Topic to compact.")
@click.option("--include-active", is_flag=True, help="Close the active segment first, so that it is compacted too.")
@click.option("--force", is_flag=True, help="Compact even if the topic's cleanup.policy is not compact.")
@click.option("--map-mib", type=click.IntRange(1), default=128, show_default=True, help="Memory for the keys of one round.")
@json_option
def command(directory: str, topic: str, include_active: bool, force: bool, map_mib: int, as_json: bool) -> None:
    """Keep the newest record of each key of a topic in the log directory DIR, and drop the older ones.

    For topics with cleanup.policy=compact a server does this in the background; the command does it at once. It also drops
    records without a key, as Kafka does: a compacted topic accepts none. There is no way back, so run `triolog backup` first.
    Stop the server first; `triolog verify` should find no damage.
    """
    from ...server.offline.compact_directory import CompactionOptions
    from ...server.offline.repair_directory import topic_config
    from ...server.offline.verify import read_directory_files

    with stopped(directory, (topic,), writes=True) as (fs, found):
        says = read_directory_files(fs, found, Warnings(found))
        if not force:
            check_policies(found, says)
        how = CompactionOptions(
            config=attrs.evolve(topic_config(says, topic), min_compaction_lag_ms=0, cleanup_policy=("compact",)),
            now_ms=lambda: time.time_ns() // 1_000_000,
            include_active=include_active,
            map_bytes=map_mib * MIB,
        )
        begin = time.perf_counter()
        done = _compact(fs, found, says, how)
    _report(topic, done, time.perf_counter() - begin, as_json=as_json)


def check_policies(directory: StoppedDirectory, says: DirectorySays) -> None:
    """Raise FailedError when a topic is not to be compacted."""
    for files in directory.partitions:
        if not says.of(files.topic_partition).is_compacted:
            raise FailedError(
                f"the cleanup.policy of {printable(files.topic_partition.topic)} is not compact: older records of "
                "equal keys and all records without a key would be lost. --force compacts it anyway"
            )


def _compact(
    fs: FileSystem, directory: StoppedDirectory, says: DirectorySays, how: CompactionOptions
) -> list[CompactedPartition]:
    from ...protocol.errors import TriologError
    from ...server.offline.compact_directory import compact_directory

    with open_progress("compacting", None, counts_records=False) as bar:
        try:
            return list(compact_directory(fs, directory, says.of, how, Sum(bar)))
        except TriologError as exc:
            raise FailedError(f"{printable(str(exc))}. See `triolog verify {printable(directory.path)}`") from exc


def _report(topic: str, done: list[CompactedPartition], elapsed_s: float, *, as_json: bool) -> None:
    if as_json:
        names = ("bytes_before", "bytes_after", "rounds", "keys", "keyless_records")
        rows = [{"partition": each.topic_partition.partition, **fields(each, *names)} for each in done]
        print_json({"topic": topic, "partitions": rows})
        return
    for partition in done:
        before, after = size_text(partition.bytes_before), size_text(partition.bytes_after)
        keyless = (
            f", {count_text(partition.keyless_records, 'record')} without a key dropped" if partition.keyless_records else ""
        )
        rounds = f"{count_text(partition.keys, 'key')} in {count_text(partition.rounds, 'round')}{keyless}"
        say(f"{partition.topic_partition}: {before} -> {after}, {rounds}")
    say(f"{count_text(len(done), 'partition')} in {elapsed_s:.2f} s")
