"""`triolog topics`: create, list, describe, delete; `segments` and `topic_changes` have the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..terminal.grammar import Group, ignored, option
from ..terminal.output import count_text, draw, print_json, say, size_text, table
from ..terminal.remote import ServerAddress
from ..terminal.shapes import ask, asks_server, check_confirmed, columns, config_option, fields, read_configs, yes_option
from .segments import segments
from .topic_changes import add_partitions, alter, nearest_keys, trim

if TYPE_CHECKING:
    from ....protocol.native.messages import ConfigEntry, PartitionMetadata, TopicMetadata
    from ...client.admin import Admin


@click.group(cls=Group)
def command() -> None:
    """Create, list, describe, change and delete topics."""


command.add_command(segments)
command.add_command(alter)
command.add_command(add_partitions)
command.add_command(trim)


@command.command
@click.argument("name")
@option(
    "-p",
    "--partitions",
    also=("--partition",),
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of partitions.",
)
@config_option
@ignored("-r", "--replicas", "--replication-factor", takes_value=True)
@asks_server
def create(name: str, partitions: int, configs: tuple[str, ...], server: ServerAddress, as_json: bool) -> None:
    """Create topic NAME. `triolog topics describe` shows every configuration key of a topic."""
    config = read_configs(configs, "--config")
    with nearest_keys(config):
        created = ask(server, lambda admin: admin.create_topic(name, partitions, config))
    if as_json:
        print_json({"name": name, "topic_id": created.topic_id, "partitions": partitions, "config": config})
    else:
        say(f"created {name} with {count_text(partitions, 'partition')}")


@command.command("list")
@asks_server
def list_topics(server: ServerAddress, as_json: bool) -> None:
    """List all topics."""
    topics = ask(server, lambda admin: admin.list_topics())
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif topics:
        headings = columns("<topic", ">partitions", ">records", ">size", "<overridden")
        draw(table(headings, [_row(topic) for topic in topics]))
    else:
        say(f"{server} has no topics. `triolog topics create NAME` creates one")


@command.command
@click.argument("name")
@asks_server
def describe(name: str, server: ServerAddress, as_json: bool) -> None:
    """Show the partitions of topic NAME and its whole configuration."""

    async def described(admin: Admin) -> tuple[TopicMetadata, dict[str, ConfigEntry]]:
        return await admin.describe_topic(name), await admin.describe_config(name)

    topic, config = ask(server, described)
    if as_json:
        partitions = [_partition(part) for part in topic.partitions]
        settings = {key: {"value": entry.value, "source": entry.source} for key, entry in config.items()}
        print_json({**_summary(topic), "partitions": partitions, "config": settings})
        return
    draw(_partitions_table(topic), _config_table(config))


@command.command
@click.argument("name")
@yes_option
@asks_server
def delete(name: str, yes: bool, server: ServerAddress, as_json: bool) -> None:
    """Delete topic NAME and all of its records."""
    topic = ask(server, lambda admin: admin.describe_topic(name))
    records, partitions = _records(topic), len(topic.partitions)
    question = f"Delete {name} with {count_text(partitions, 'partition')} and {count_text(records, 'record')}?"
    check_confirmed(yes, question, f"{name} was not deleted; --yes deletes")
    ask(server, lambda admin: admin.delete_topics(name))
    if as_json:
        print_json({"name": name, "deleted": True, "partitions": partitions, "records": records})
    else:
        say(f"deleted {name}")


def _records(topic: TopicMetadata) -> int:
    return sum(part.high_watermark - part.log_start_offset for part in topic.partitions if part.error is None)


def _row(topic: TopicMetadata) -> tuple[str, ...]:
    offline = sum(part.error is not None for part in topic.partitions)
    partitions = f"{len(topic.partitions):,}" + (f" ({offline:,} offline)" if offline else "")
    config = " ".join(f"{key}={value}" for key, value in topic.config.items())
    size = size_text(sum(part.size_bytes for part in topic.partitions))
    return topic.name, partitions, f"{_records(topic):,}", size, config


def _summary(topic: TopicMetadata) -> dict[str, Any]:
    return {
        **fields(topic, "name", "topic_id"),
        "partitions": len(topic.partitions),
        "records": _records(topic),
        "bytes": sum(part.size_bytes for part in topic.partitions),
        "config": topic.config,
    }


def _partition(part: PartitionMetadata) -> dict[str, Any]:
    if part.error is not None:
        return {"partition": part.partition, "error": str(part.error)}
    return {
        **fields(part, "partition", "error", "log_start_offset", "high_watermark"),
        "records": part.high_watermark - part.log_start_offset,
        "bytes": part.size_bytes,
        **fields(part, "segments", "waiting"),
    }


def _partitions_table(topic: TopicMetadata) -> Any:
    headings = columns(">partition", ">log start", ">high watermark", ">records", ">bytes", ">segments")
    if any(part.error is not None or part.waiting is not None for part in topic.partitions):
        headings["error"] = "left"
    rows: list[list[str]] = []
    for part in topic.partitions:
        records = part.high_watermark - part.log_start_offset
        numbers = (part.log_start_offset, part.high_watermark, records, part.size_bytes, part.segments)
        cells = ["-"] * len(numbers) if part.error is not None else [f"{number:,}" for number in numbers]
        errors = [str(part.error or part.waiting or "")] if "error" in headings else []
        rows.append([str(part.partition), *cells, *errors])
    return table(headings, rows, title=f"topic {topic.name}")


def _config_table(config: dict[str, ConfigEntry]) -> Any:
    rows = [(key, entry.value, entry.source) for key, entry in sorted(config.items())]
    return table(columns("<configuration key", ">value", "<source"), rows, title="configuration")
