"""`triolog sql`: the command. The questions are `triolog.tools.sql`'s."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ....protocol.extras import how_to_install
from ..terminal.failures import FailedError
from ..terminal.grammar import option
from ..terminal.output import timezone_option, write_drawn
from ..terminal.remote import ServerAddress, access, server_option
from ..terminal.times import Zone

if TYPE_CHECKING:
    from ...schemas.registry_values import RegistryValues
    from ...sql.options import SqlOptions
    from ...sql.session import Answer

CLEAR = b"\x1b[H\x1b[2J"


def _read_interval(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from ..terminal.times import parse_duration

    try:
        return parse_duration(value) / 1000
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


@click.command
@click.argument("question", metavar="SQL")
@server_option
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    help="Log directory, or one partition's directory, instead of a server.",
)
@click.option(
    "-f",
    "--format",
    "format_name",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="json prints a line for each row. [default: table, with --output by its ending]",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, and replace it when the result is complete.",
)
@click.option("--explain", is_flag=True, help="Run the query, and show its plan and its reads instead of the result.")
@click.option(
    "--follow", callback=_read_interval, metavar="5s", help="Repeat the query this long after each result, until Ctrl-C."
)
@click.option(
    "--values",
    multiple=True,
    metavar="[TOPIC=]KIND",
    help="Format of values: auto, json, msgpack, avro, registry, raw. [default: auto]",
)
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Decode values that begin with the id of a schema by this registry.  [default: only as --values says]",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="[TOPIC=]COLUMNS",
    help=(
        "Fields of values, such as 'carrier VARCHAR, delay BIGINT'; for avro a file with the schema. "
        "[default: the first values']"
    ),
)
@click.option(
    "--errors",
    type=click.Choice(["raise", "null"]),
    default="raise",
    show_default=True,
    help="Treatment of a value that does not match.",
)
@click.option(
    "--isolation", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed", show_default=True
)
@option(
    "-n",
    "--max",
    "rows",
    also=("--rows",),
    metavar="N",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Show at most N rows of a table.",
)
@click.option(
    "--memory-limit", default="1GB", show_default=True, metavar="SIZE", help="Memory of DuckDB, which spills the rest to disk."
)
@timezone_option
@click.pass_context
def command(
    ctx: click.Context,
    question: str,
    server: ServerAddress,
    data_dir: str | None,
    format_name: str | None,
    output: Path | None,
    explain: bool,
    follow: float | None,
    values: tuple[str, ...],
    schema_registry: str | None,
    schemas: tuple[str, ...],
    errors: Any,
    isolation: str,
    rows: int,
    memory_limit: str,
    zone: Zone,
) -> None:
    """Query topics with SQL: triolog sql "select carrier, avg(arr_delay) from flights group by 1".

    Topics are tables with the columns topic, partition, offset, timestamp, timestamp_type, key, value, headers and the fields
    of their values. Files are tables, too: join 'airlines.csv' or 'planes.parquet'. The dialect is DuckDB's, where offset is a
    keyword: write that column as "offset" in double quotes.
    """
    if data_dir is not None and ctx.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--server and --data-dir exclude each other. Give one of them")
    chosen = format_name or _format_of(output)
    if chosen == "table" and output is not None:
        raise click.UsageError("--output accepts csv, json or parquet. Choose one with --format")
    if chosen == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("--format parquet needs --output FILE on a terminal")
    _check_installed()
    from ....protocol.types import Isolation
    from ...sql.options import KINDS, SqlOptions

    tls, login = access() if data_dir is None else (None, None)
    kinds = _by_topic(values)
    if wrong := [kind for kind in kinds.values() if kind not in KINDS]:
        raise click.BadParameter(f"{wrong[0]!r} is not one of {', '.join(KINDS)}", param_hint="--values")
    options = SqlOptions(
        values=kinds,
        schemas=_schemas(_by_topic(schemas), kinds),
        registry=None if schema_registry is None else _registry(schema_registry),
        errors=errors,
        isolation=Isolation(isolation),
        login=login,
        tls=tls,
        time_zone=_zone_name(zone),
        memory_limit=memory_limit,
    )
    source = tuple(server) if data_dir is None else data_dir
    while True:
        if follow is not None and chosen == "table" and output is None and sys.stdout.isatty():
            write_drawn(CLEAR)
        _answer(source, question, options, chosen, output, zone, rows, explain=explain)
        if follow is None:
            return
        time.sleep(follow)


def _registry(url: str) -> RegistryValues:
    from ..terminal.schema_values import registry_at  # with the packages of the extra

    return registry_at(url)


def _answer(
    source: Any,
    question: str,
    options: SqlOptions,
    format_name: str,
    output: Path | None,
    zone: Zone,
    rows: int,
    *,
    explain: bool,
) -> None:
    from ....protocol.errors import TriologError
    from ...sql.session import ask

    try:
        with ask(source, question, options, with_plan=explain) as answer:
            if explain:
                from .explained import explain_answer

                explain_answer(answer, zone, None if isinstance(source, str) else ServerAddress(*source))
            elif answer.schema is not None:
                _write(answer, format_name, output, rows)
    except TriologError as exc:
        raise FailedError(
            str(exc)
            .replace('errors="null"', "--errors null")
            .replace("give a schema", "--schema gives one")
            .replace('values="registry" needs the URL of a schema registry', "--values registry needs --schema-registry URL")
        ) from exc


def _write(answer: Answer, format_name: str, output: Path | None, rows: int) -> None:
    from . import formats

    schema = answer.schema
    assert schema is not None
    if output is not None:
        try:
            with formats.replaced(output) as file:
                if format_name == "parquet":
                    formats.write_parquet(schema, answer.batches(), file)
                else:
                    formats.write_rows(schema, answer.batches(), format_name, file.write)
        except OSError as exc:
            raise FailedError(f"{output}: {exc.strerror or exc}") from exc
    elif format_name == "table":
        formats.show_table(schema, answer.batches(), rows)
    else:
        formats.to_output(schema, answer.batches(), format_name)


def _check_installed() -> None:
    try:
        import duckdb as _  # noqa: F401
        import numpy as _numpy  # noqa: F401
        import pyarrow as _pyarrow  # noqa: F401
    except ImportError:
        raise FailedError(f"triolog sql needs DuckDB and pyarrow: {how_to_install('sql')}") from None


def _format_of(output: Path | None) -> str:
    if output is None:
        return "table"
    by_ending = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
    if output.suffix not in by_ending:
        raise click.UsageError(f"the name {output.name} has no known ending. Add --format")
    return by_ending[output.suffix]


def _by_topic(texts: tuple[str, ...]) -> dict[str | None, str]:
    """`TOPIC=TEXT`, or `TEXT` for all topics; a name has no space, so that a schema may hold the sign."""
    found: dict[str | None, str] = {}
    for text in texts:
        topic, sign, rest = text.partition("=")
        if sign and " " not in topic:
            found[topic] = rest
        else:
            found[None] = text
    return found


def _schemas(schemas: dict[str | None, str], kinds: dict[str | None, str]) -> dict[str | None, str]:
    """With Avro's out of their files."""
    found = dict(schemas)
    for topic, text in schemas.items():
        if kinds.get(topic, kinds.get(None)) == "avro":
            try:
                found[topic] = Path(text).read_text()
            except (OSError, UnicodeDecodeError) as exc:
                raise FailedError(f"--schema {text}: {exc}") from exc
    return found


def _zone_name(zone: Zone) -> str | None:
    return None if zone is None else str(zone)
