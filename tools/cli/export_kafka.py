"""`triolog export-kafka`: move a stopped log directory to Apache Kafka. docs/kafka-migration.md has it step by step."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .terminal.failures import FailedError
from .terminal.output import count_text, flush, json_option, print_json, say, say_lines, size_text
from .terminal.progress import open_progress
from .terminal.shapes import Sum, fields, read_configs

if TYPE_CHECKING:
    from ...server.offline.export_kafka import Exported, ExportPlan
    from ...server.storage.directory.topics_file import Topic


@click.command
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.argument("out", metavar="[OUT]", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--print-commands", is_flag=True, help="Print the kafka-topics.sh commands that create the topics; needs no OUT.")
@click.option("--bootstrap-server", default="localhost:9092", show_default=True, help="Kafka's address in these commands.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic key for every topic in these commands (repeatable).",
)
@click.option("--copy", is_flag=True, help="Copy sealed segments too, instead of creating hard links.")
@json_option
def command(
    directory: str,
    out: str | None,
    print_commands: bool,
    bootstrap_server: str,
    configs: tuple[str, ...],
    copy: bool,
    as_json: bool,
) -> None:
    """Copy the partitions of the log directory DIR into OUT, a log directory of a formatted Kafka.

    First create the topics in Kafka with the commands that --print-commands shows, and shut Kafka down cleanly. Both
    directories must be stopped. The copy keeps Kafka's topic ids, and DIR does not change. If the command was interrupted, run
    it again.
    """
    from ...server.storage.errors import StorageError

    source = str(Path(directory).absolute())
    try:
        if print_commands:
            _print_commands(source, bootstrap_server, _read_kafka_configs(configs), as_json=as_json)
            return
        if out is None:
            raise click.UsageError("no target. Give OUT, a log directory of Kafka, or --print-commands")
        plan, exported = _export(source, str(Path(out).absolute()), link=not copy)
    except (StorageError, OSError) as exc:
        raise FailedError(str(exc)) from exc
    _report(plan, exported, as_json=as_json)


def _print_commands(source: str, bootstrap_server: str, configs: dict[str, str], *, as_json: bool) -> None:
    from ...server.storage.directory.catalogue import StoredTopics
    from ...server.storage.disk.filesystem import OsFileSystem

    lines = list(create_topic_commands(StoredTopics.read(OsFileSystem(), source).topics, bootstrap_server, configs))
    if as_json:
        print_json({"commands": [line for line in lines if not line.startswith("#")]})
        return
    say_lines("\n".join(lines))
    flush()


def _read_kafka_configs(texts: tuple[str, ...]) -> dict[str, str]:
    configs = read_configs(texts, "--config")
    for key, value in configs.items():
        if key not in KAFKA_TOPIC_KEYS:
            raise click.BadParameter(f"{key!r} is not a topic key of Kafka", param_hint="--config")
        if key in KAFKA_SMALLEST and not (value.isascii() and value.isdigit()):
            raise click.BadParameter(f"'{key}={value}': {key} is not a number", param_hint="--config")
    return configs


def _export(source: str, target: str, *, link: bool) -> tuple[ExportPlan, Exported]:
    from ...server.offline.export_kafka import check_source, check_target, execute_export, locked, plan_export
    from ...server.storage.disk.filesystem import OsFileSystem

    fs = OsFileSystem()
    with locked(source):
        check_source(fs, source)
        check_target(fs, target)  # before the lock puts a file there
        with locked(target):
            plan = plan_export(fs, source, target)
            with open_progress("exporting", plan.total_bytes, counts_records=False) as bar:
                return plan, execute_export(fs, plan, link=link, on_bytes=Sum(bar))


def _report(plan: ExportPlan, exported: Exported, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                **each.topic_partition._asdict(),
                "log_start_offset": each.log_start_offset,
                "log_end_offset": each.end_offset,
                "bytes": each.total_bytes,
            }
            for each in plan.partitions
        ]
        counts = fields(exported, "linked_files", "linked_bytes", "copied_files", "copied_bytes")
        print_json({"partitions": rows, "already_there": len(plan.done), **counts})
        return
    there = f"; {count_text(len(plan.done), 'partition')} there already" if plan.done else ""
    text = (
        f"exported {count_text(len(plan.partitions), 'partition')} to {plan.target}: "
        f"{count_text(exported.linked_files, 'file')} linked ({size_text(exported.linked_bytes)}), "
        f"{count_text(exported.copied_files, 'file')} copied ({size_text(exported.copied_bytes)}){there}"
    )
    say(text)
    flush()


KAFKA_TOPIC_KEYS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Topic keys that Kafka 4.3 has; the others are ours, an older Kafka's or nobody's."""

KAFKA_SMALLEST: Final[Mapping[str, int]] = {"segment.bytes": 1_048_576}
"""Kafka 4.3's smallest values, where ours are smaller."""


def create_topic_commands(topics: Iterable[Topic], bootstrap_server: str, configs: Mapping[str, str]) -> Iterator[str]:
    """A line for each topic, and before it a comment for each key that Kafka does not take as it is. `configs` are laid over
    every topic's own."""
    for topic in topics:
        words = ["kafka-topics.sh", "--bootstrap-server", bootstrap_server, "--create", "--topic", topic.name]
        words += ["--partitions", str(topic.partitions), "--replication-factor", "1"]
        for key, value in sorted({**topic.configs, **configs}.items()):
            if key not in KAFKA_TOPIC_KEYS:
                yield f"# {topic.name}: {key}={value} is left out, Kafka 4.3 has no such key"
                continue
            smallest = KAFKA_SMALLEST.get(key)
            if smallest is not None and int(value) < smallest:
                yield f"# {topic.name}: {key}={value} is raised to {smallest}, the smallest that Kafka takes"
                value = str(smallest)
            words += ["--config", f"{key}={value}"]
        yield shlex.join(words)
