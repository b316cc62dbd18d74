"""The rows of a Parquet or Arrow file on their way to a topic: what `triolog.tools.arrow.write` does, with a progress bar."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ....protocol.extras import how_to_install
from .failures import FailedError
from .progress import MB, open_progress
from .remote import ServerAddress, access

if TYPE_CHECKING:
    from ...arrow import Written

FORMATS = ("parquet", "arrow")


@attrs.frozen(kw_only=True)
class TableOptions:
    """The mapping from rows to records."""

    topic: str
    format_name: str
    key: str | None
    value: str | None
    timestamp: str | None
    partition: int | None
    compression: str


def produce_table(server: ServerAddress, file: str, options: TableOptions) -> dict[str, Any]:
    """Send it all; what was acknowledged, as `triolog produce` sums it up. FailedError in one line."""
    try:
        import pyarrow as _  # noqa: F401
    except ImportError:
        raise FailedError(f"--format {options.format_name} needs pyarrow: {how_to_install('arrow')}") from None
    from ...arrow import ArrowError, write

    if not Path(file).is_file():
        raise FailedError(f"{file} is not a file. --format {options.format_name} cannot read standard input")
    tls, login = access()
    size = Path(file).stat().st_size
    begin = time.perf_counter()
    with open_progress(f"{options.topic} <- {Path(file).name}", size) as bar:

        def show(written: Written, rows: int | None) -> None:
            bar.update(done_bytes=size * written.records // rows if rows else 0, records=written.records)

        try:
            written = write(
                (server.host, server.port),
                options.topic,
                file,
                key=options.key,
                value=options.value,
                timestamp=options.timestamp,
                partition=options.partition,
                compression=options.compression,  # type: ignore[arg-type]
                file_format=options.format_name,  # type: ignore[arg-type]
                tls=tls,
                login=login,
                progress=show,
            )
        except ArrowError as exc:
            raise FailedError(str(exc)) from exc
        bar.update(done_bytes=size, records=written.records)
    seconds = max(time.perf_counter() - begin, 1e-9)
    return {
        "topic": written.topic,
        "records": written.records,
        "skipped": 0,
        "bytes": written.bytes,
        "elapsed_s": round(seconds, 6),
        "records_per_s": round(written.records / seconds, 1),
        "mb_per_s": round(written.bytes / seconds / MB, 3),
        "partitions": [
            {
                "partition": number,
                "records": each.records,
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
            }
            for number, each in sorted(written.partitions.items())
        ],
    }
