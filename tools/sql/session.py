"""Runs one query: finds the topics that it names, streams DuckDB's result, reports the scans."""

from __future__ import annotations

import difflib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..arrow.reading import open_source
from ..arrow.sources import Source
from .options import SqlError, SqlOptions, one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from .topic import Scan

FILE_ENDINGS: Final = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson", ".csv.gz", ".json.gz", ".arrow", ".db")
BATCH_ROWS: Final = 20_000
MAX_NAMED: Final = 10
"""Topics that an error names."""


@attrs.define(eq=False, repr=False)
class Answer:
    """Rows of an answer, and the scans that were made for it. Owner: the block of `ask`."""

    _reader: pa.RecordBatchReader | None
    scans: list[Scan]
    plan: str = ""
    _connection: Any = None

    @property
    def schema(self) -> pa.Schema | None:
        """None for a statement without an answer."""
        return None if self._reader is None else self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, once. SqlError, ArrowError, KeyboardInterrupt."""
        with _said(self.scans):
            yield from self._reader or ()
        for scan in self.scans:
            scan.warn()


@contextmanager
def ask(source: Source, sql: str, options: SqlOptions | None = None, *, with_plan: bool = False) -> Iterator[Answer]:
    """Ask one question. `source` is what `triolog.tools.arrow.read` takes.

    Raises SqlError for SQL that fails, ArrowError for what cannot be read: then, or when the rows come.
    """
    import duckdb

    options = options or SqlOptions()
    scans: list[Scan] = []
    folder = tempfile.mkdtemp(prefix="triolog-sql-")  # of this question alone, and of nobody else
    try:
        with _said(scans):
            connection = duckdb.connect(config=_config(options, folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        connection.execute("set enable_progress_bar = false")
        if options.time_zone is not None:
            connection.execute("set TimeZone = ?", [options.time_zone])
        with _said(scans):
            tables = _named(connection, sql)
        names = _topics(source, options) if tables else []
        found = _found(tables, names)
        notes = []
        for table, topic in found.items():
            from .topic import TopicTable

            made = TopicTable(source, topic, options, scans, _values_schema(*options.of_topic(topic)))
            connection.register(table, made)
            notes.append(made.note)
        try:
            with _said(scans):
                plan = _plan(connection, sql) if with_plan else ""
                relation = connection.sql(sql)
                reader = None if relation is None else relation.to_arrow_reader(BATCH_ROWS)
        except SqlError as exc:
            raise _with_hint(exc, sorted(tables - found.keys()), names, [note for note in notes if note]) from exc
        yield Answer(reader, scans, plan, connection)
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def _config(options: SqlOptions, folder: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "temp_directory": folder,
    }
    if options.memory_limit is not None:
        config["memory_limit"] = options.memory_limit
    return config


def _named(connection: Any, sql: str) -> set[str]:
    """The tables that the question names. SqlError unless it is one statement."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise SqlError(f"{len(statements)} statements, expected one")
    names: set[str] = connection.get_table_names(sql)
    return names - _files(sql, names)


def _files(sql: str, names: set[str]) -> set[str]:
    """Those of the names that are files: they stand in single quotes, and are there or end as files do. SqlError for one that
    the question names both ways."""
    import duckdb

    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(sql)]
    words = [(kind, sql[start:end].strip()) for (start, kind), end in zip(tokens, ends, strict=True)]
    quoted = {word[1:-1].replace("''", "'") for kind, word in words if kind == duckdb.token_type.string_const}
    plain = {word.strip('"').replace('""', '"').lower() for kind, word in words if kind == duckdb.token_type.identifier}
    files = {name for name in names & quoted if Path(name).exists() or name.lower().endswith(FILE_ENDINGS)}
    if both := sorted(name for name in files if name.lower() in plain):
        raise SqlError(f"{both[0]} is a file in single quotes and a topic in double ones. Use one of them, or ./{both[0]}")
    return files


def _topics(source: Source, options: SqlOptions) -> list[str]:
    opened = open_source(source, options.reading())
    try:
        return opened.topics()
    finally:
        opened.close()


def _found(tables: set[str], topics: list[str]) -> Mapping[str, str]:
    """Of each table that is a topic, which one. SqlError for two tables that DuckDB takes for one."""
    found: dict[str, str] = {}
    for table in sorted(tables):
        alike = [topic for topic in topics if topic.lower() == table.lower()]
        topic = table if table in alike else alike[0] if len(alike) == 1 else None
        if topic is None and alike:
            raise SqlError(f"{table} does not match one of the topics {', '.join(alike)}. Write the name with the same case")
        if topic is not None:
            if other := next((each for each in found if each.lower() == table.lower()), None):
                raise SqlError(f"{other} and {table} differ only in case, which SQL ignores. Use one of them")
            found[table] = topic
    return found


def _values_schema(kind: str, text: str | None) -> Any:
    """As `parser_of` takes it."""
    if text is None or kind == "avro":
        return text
    import duckdb

    try:
        with duckdb.connect() as connection:
            connection.execute(f"create table t ({text})")
            return connection.sql("select * from t").to_arrow_table().schema
    except duckdb.Error as exc:
        raise SqlError(
            f"invalid schema {text!r}: expected columns as in 'carrier VARCHAR, delay BIGINT': {one_line(exc)}"
        ) from exc


def _plan(connection: Any, sql: str) -> str:
    import duckdb

    try:
        return "\n".join(row[-1] for row in connection.sql(f"explain {sql}").fetchall()).rstrip()
    except duckdb.ParserException:  # of a statement that has no plan
        return ""


@contextmanager
def _said(scans: list[Scan]) -> Iterator[None]:
    """Raise failures inside DuckDB as our errors: the scan's own error if one failed."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException, RuntimeError, OSError) as exc:
        failure = next((scan.failure for scan in scans if scan.failure is not None), None)
        if failure is not None:
            raise failure from exc
        if isinstance(exc, RuntimeError) and "interrupted" in str(exc):
            raise KeyboardInterrupt from exc
        text = one_line(exc)
        if 'syntax error at or near "offset"' in text:
            text += '. In SQL, offset is a keyword: write the column as "offset" in double quotes'
        raise SqlError(text) from exc


def _with_hint(error: SqlError, tables: list[str], topics: list[str], notes: list[str]) -> SqlError:
    text = str(error)
    if notes and "not found in FROM clause" in text:
        return SqlError("; ".join((text, *notes)))
    missing = [table for table in tables if f"name {table} does not exist" in text]
    if not missing:
        return error
    near = difflib.get_close_matches(missing[0], topics, n=1)
    there = (
        f"Topics: {', '.join(topics[:MAX_NAMED])}{', ...' if len(topics) > MAX_NAMED else ''}" if topics else "No topic exists"
    )
    return SqlError(f"there is no topic {missing[0]}. {f'Did you mean {near[0]}?' if near else there}")
