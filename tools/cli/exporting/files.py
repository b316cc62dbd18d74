"""`triolog export --target`: files by topic and day, piece by piece; the layout is `triolog.tools.export`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..terminal.failures import FailedError
from ..terminal.output import count_text, say, size_text
from ..terminal.progress import open_progress

if TYPE_CHECKING:
    from ...export.layout import Export, Exported
    from ...export.writers import ToLine


def export_files(
    directory: str,
    target: str,
    topics: tuple[str, ...],
    format_name: str,
    *,
    to_line: ToLine | None,
    compression: str,
    offsets: tuple[int | None, int | None],
    times: tuple[int | None, int | None],
    committed: bool,
) -> None:
    """Write what is not there yet. FailedError in one line."""
    try:
        import numpy as _numpy  # noqa: F401
        import pyarrow as _  # noqa: F401
    except ImportError:
        raise FailedError("--target needs pyarrow: pip install 'triolog[arrow]'") from None
    from ....protocol.errors import TriologError
    from ...export.layout import Export
    from ...export.log_pieces import LogSource

    job = Export(
        source=LogSource(
            directories=(directory,), topics=topics, committed=committed, from_offset=offsets[0], to_offset=offsets[1]
        ),
        target=target,
        compression=compression,
        format=format_name,
        start_timestamp=times[0],
        end_timestamp=times[1],
    )
    try:
        done = _export(job, to_line)
    except (TriologError, OSError) as exc:
        raise FailedError(str(exc)) from exc
    files = f"{count_text(done.files, 'file')}, {size_text(done.size_bytes)}"
    say(f"{count_text(done.records, 'record')} in {files}, in {target}")


def _export(job: Export, to_line: ToLine | None) -> Exported:
    from ...export.layout import begin, export_piece, finish

    manifest, pieces = begin(job)
    done_bytes = sum(piece.size_bytes for piece in pieces if piece.name in manifest.done)
    records = sum(result["records"] for result in manifest.done.values())
    with open_progress("exporting", sum(piece.size_bytes for piece in pieces)) as bar:

        def show(log_bytes: int, rows: int) -> None:
            nonlocal done_bytes, records
            done_bytes += log_bytes
            records += rows
            bar.update(done_bytes=done_bytes, records=records)

        for piece in pieces:
            if piece.name not in manifest.done:
                manifest.add({piece.name: export_piece(job, piece.what, to_line, show)})
    return finish(job, manifest, [manifest.done[piece.name] for piece in pieces])
