"""Tables of parameters for the Python reference: a griffe extension that MkDocs loads, see mkdocs.yml.

A row has name, type and default from the signature. Its meaning is the sentence after "`name`:" in the docstring, which then
moves into the table, or the docstring of the field, or what the parameter means everywhere, as `MEANINGS` has it. A function
gets a table if each of its parameters has a meaning. tests/test_parameter_tables.py names those that must.
"""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

MEANINGS: Final = {
    "acks": "-1: the response comes when the append is as durable as the topic requires. 1: when it is in the page cache. 0: no"
    " response.",
    "acls": "ACLs.",
    "application": "Name of the application that stages records.",
    "before": "The first offset to keep for each partition; -1 deletes all records.",
    "before_offset": "The first offset to keep; -1 deletes all records.",
    "changes": "Values by key.",
    "client": "The client that makes the calls.",
    "committed_only": "Leave out records of aborted transactions, and stop before the first open one.",
    "config": "Kafka's topic keys. None: the server's defaults.",
    "deletes": "Keys that follow the server's defaults again.",
    "end": "The place to end at, exclusive. None: the end of the log at the start, or none for a consumer that follows.",
    "entity": "`user`, `client-id`, both, or `ip`, each with a name; None: the default.",
    "expected_offset": "Append only if the partition ends at this offset. None: at any.",
    "filters": "ACLs with fields of any value.",
    "flush": "Wait until all records are settled. False: give up those that are not.",
    "from_offsets": "The offset to start at in each partition; 0 by default.",
    "function": "A function without arguments.",
    "group": "Name of the group.",
    "groups": "Names of groups.",
    "headers": "Pairs of name and value.",
    "key": "Key of the record; None: without.",
    "lease_id": "The lease to renew. None: take a new one.",
    "lease_ms": "Time that the segments stay on the disk; 0 ends the lease.",
    "listener": "A function without arguments, called once when the record is settled.",
    "max_bytes": "Size of one read at most; at least one batch is read.",
    "max_connections": "Number of connections in the response at most.",
    "max_producers": "Number of producers in the response at most.",
    "max_segments": "Number of segments in the response at most.",
    "max_transactions": "Number of transactions in the response at most.",
    "max_wait_s": "Time to wait for the first record.",
    "name": "Name of the topic.",
    "names": "Names of topics.",
    "node": "Number of the node, from 1 on.",
    "offset": "The offset to start at. None: 0.",
    "offsets": "The offset of the record to read next, by partition.",
    "open_for_ms": "Only transactions that have been open for so long. None: all.",
    "open_only": "Only producers with an open transaction.",
    "options": "Fields of the settings by name, in place of those of `config`.",
    "partition": "The partition.",
    "partitions": "Number of partitions.",
    "place": "A place in the log: an offset, a time, `EARLIEST` or `LATEST`.",
    "places": "Topics, or single partitions of them.",
    "port": "Port of a server that is given as a host without one.",
    "procedure": "Requests as a generator.",
    "producer_id": "The producer's id.",
    "questions": "Partitions, each with a timestamp in ms since the epoch.",
    "ranges": "A first and an end offset by partition.",
    "records": "Values, or tuples of timestamp in ms (None: now), key, value and headers.",
    "record": "A record of the follow.",
    "request": "A message of the native protocol.",
    "salted": "Iterations, salt and salted password by mechanism; None deletes the mechanism.",
    "server": '"host", "host:port" or "[IPv6]:port", a pair of host and port, or a function that returns one.',
    "start": "`earliest` or `latest`, or a place in the log.",
    "start_offset": "An offset to start at.",
    "start_timestamp": "The first timestamp. Unit: ms since the epoch.",
    "end_timestamp": "The end of the timestamps, exclusive. Unit: ms since the epoch.",
    "states": "States of transactions. None: all.",
    "target_bytes": "Size of one part.",
    "task": "Name of the task that stages records.",
    "tasks": "What the tasks have staged.",
    "timeout_ms": "Time after which the server aborts an open transaction.",
    "timeout_s": "Time to wait before TimeoutError. None: no limit.",
    "times": "Only records of this range of times. None: all.",
    "timestamp_ms": "Time of the record. None: now. Unit: ms since the epoch.",
    "timestamps": "A timestamp by partition. Unit: ms since the epoch.",
    "topic": "Name of the topic.",
    "topics": "Names of topics.",
    "total": "Number of partitions afterwards.",
    "transactional_id": "Id of the transactions.",
    "transactional_ids": "Ids of transactions.",
    "user": "Name of the user.",
    "validate_only": "Check the request, and create nothing.",
    "value": "Value of the record; None deletes the key of a compacted topic.",
    "version": "Version of the application's state.",
    "with_segments": "Return all segments, too.",
    # Where a name has another meaning:
    "connect.config": "Settings of the connection. None: the defaults.",
    "BlockingClient.config": "Settings of the connection. None: the defaults.",
    "open_producer.config": "Settings of the producer. None: the defaults.",
    "BlockingProducer.config": "Settings of the producer. None: the defaults.",
    "open.options": "Those of `triolog.open`.",
    "open_consumer.config": "Settings of the consumer. None: the defaults.",
    "BlockingConsumer.config": "Settings of the consumer. None: the defaults.",
    "Appender.config": "Settings of the producer: the timeouts, the backoff and the compression count. None: the defaults.",
    "BlockingAppender.config": "Settings of the producer: the timeouts, the backoff and the compression count. None: the"
    " defaults.",
    "group_offsets.partitions": "Partitions. None: all that the group has committed.",
    "lease_segments.partitions": "Partitions.",
    "create_partitions.name": "Name of the topic.",
    "Admin.stage.records": "Record batches by partition.",
    "alter_quotas.values": "Limits by key; None removes one.",
    "triolog_broker.request": "Pytest's own: a test only names the fixture.",
    "within.deadline": "The end, as `time.monotonic` returns it.",
    "snapshot.path": "An empty directory, or one that does not exist.",
    "move_coordinator.name": "Name of a group, or a transactional id.",
    "assign.topics": "Names of topics, or single partitions.",
    "parse.text": "HOST:PORT.",
    "seek.partition": "An assigned partition.",
}
"""What a parameter means: by its name, by function and name, or by class, method and name; the longest counts."""

UNITS: Final = {"_ms": "ms", "_s": "s", "_bytes": "bytes"}
STATED: Final = re.compile(r"`(\w+(?:`, `\w+)*)`: (.+?(?:\.(?=\s|$)|$))", re.DOTALL)


def stated(docstring: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """Return a docstring without the sentences that say what parameters mean, and those sentences."""
    found: dict[str, str] = {}

    def take(match: re.Match[str]) -> str:
        said = match[1].split("`, `")
        if not names.issuperset(said):
            return match[0]
        text = " ".join(match[2].split())
        found.update(dict.fromkeys(said, text[0].upper() + text[1:]))
        return ""

    rest = STATED.sub(take, docstring)
    return "\n\n".join(filter(None, (" ".join(each.split()) for each in rest.split("\n\n")))) if found else docstring, found


def keys_of(path: str, name: str) -> tuple[str, ...]:
    """Return the keys of MEANINGS for a parameter of a function, the longest first."""
    owner, _, function = path.rpartition(".")
    return f"{owner.rpartition('.')[2]}.{function}.{name}", f"{function}.{name}", name


def meaning(path: str, name: str, said: dict[str, str]) -> str | None:
    """Return what a parameter of a function means, with its unit; None if nobody says it."""
    text = said.get(name) or next((MEANINGS[key] for key in keys_of(path, name) if key in MEANINGS), None)
    unit = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), None)
    return text if text is None or unit is None or "Unit:" in text else f"{text} Unit: {unit}."


def default_of(value: Any) -> Any:
    """Return the default of a field: of `attrs.field(default=5)` and of `_duration(5)` it is 5."""
    if not isinstance(value, griffe.ExprCall):
        return value
    named = {each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)}
    placed = [each for each in value.arguments if not isinstance(each, griffe.ExprKeyword)]
    return named.get("default", placed[0] if placed else None)


class ParameterTables(griffe.Extension):
    """Adds a table to the docstrings of functions, of classes with a constructor, and of classes that are settings."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.name != "__init__":
            rows = [each for each in func.parameters if each.name not in ("self", "cls")]
            self._add(func, func.path, rows, _options_of(func))

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        init = cls.members.get("__init__")
        if cls.docstring is not None and "Use `open_" in cls.docstring.value:
            return  # that function makes the objects
        if isinstance(init, griffe.Function):
            self._add(cls, cls.path, [each for each in init.parameters if each.name != "self"], {}, init.docstring)
        elif cls.name.endswith("Config"):
            fields = [each for each in cls.attributes.values() if each.annotation is not None and "property" not in each.labels]
            rows = [griffe.Parameter(each.name, annotation=each.annotation, default=default_of(each.value)) for each in fields]
            said = {each.name: " ".join(each.docstring.value.split()) for each in fields if each.docstring is not None}
            self._add(cls, cls.path, rows, said)

    @staticmethod
    def _add(
        obj: griffe.Object,
        path: str,
        rows: list[griffe.Parameter],
        said: dict[str, str],
        more: griffe.Docstring | None = None,
    ) -> None:
        if obj.docstring is None or not rows:
            return
        text = "\n\n".join([obj.docstring.value, *([] if more is None else [more.value])])
        text, stated_here = stated(text, {each.name for each in rows})
        meanings = {each.name: meaning(path, each.name, said | stated_here) for each in rows}
        if None in meanings.values():
            return
        table = [
            griffe.DocstringParameter(
                each.name, annotation=each.annotation, description=meanings[each.name] or "", value=each.default
            )
            for each in rows
        ]
        obj.docstring.__dict__["parsed"] = [
            griffe.DocstringSectionText(text),
            griffe.DocstringSectionParameters(table),
        ]


def _options_of(func: griffe.Function) -> dict[str, str]:
    """Return what the options of an embedded broker's `open` mean, as OpenOptions has it."""
    if func.name != "open" or not func.path.endswith(".embedded.opening.open"):
        return {}
    fields = func.parent.parent["options.OpenOptions"].attributes.values()  # type: ignore[union-attr]
    return {each.name: " ".join(each.docstring.value.split()) for each in fields if each.docstring is not None}
