"""Progress bars on standard error: for bytes and records that a command goes through, for a server's start. rich is imported
when there is one to draw."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from .output import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from ....server.broker import StartProgress

REFRESH_S: Final = 0.1
MB: Final = 1_000_000
PATIENCE_S: Final = 1.0
"""A start that is faster shows no bar."""


class ProgressBar:
    """A bar where the size of the input is known, a counter where it is not. `update` is cheap: it draws ten times a second."""

    def __init__(self, description: str, size_bytes: int | None, console: Console, *, counts_records: bool = True) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        known = (BarColumn(), TextColumn("{task.percentage:>3.0f}%")) if size_bytes else (SpinnerColumn(),)
        counts = "{task.fields[records]:,} records  {task.fields[records_s]:,.0f}/s  " if counts_records else ""
        rates = TextColumn(counts + "{task.fields[mb_s]:.1f} MB/s")
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            *known,
            rates,
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task(description, total=size_bytes, records=0, records_s=0.0, mb_s=0.0)
        self._begin = self._drawn = time.perf_counter()
        self._latest: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._draw()
        self._progress.stop()

    def step_aside(self) -> None:
        """Before a line is written to the same terminal: the bar goes, and comes back below that line when it is drawn next."""
        import sys

        if sys.stdout.isatty():
            console = self._progress.console
            console.file.write("\r\x1b[2K")
            console.file.flush()

    def update(self, *, done_bytes: int, records: int) -> None:
        """Update the progress: bytes out of the announced total, and records."""
        now = time.perf_counter()
        elapsed = max(now - self._begin, 1e-9)
        rates = {"records": records, "records_s": records / elapsed, "mb_s": done_bytes / elapsed / MB}
        self._latest = {"completed": done_bytes, **rates}
        if now - self._drawn >= REFRESH_S:
            self._drawn = now
            self._draw()

    def _draw(self) -> None:
        self._progress.update(self._task, refresh=True, **self._latest)


class NoProgress:
    """A progress bar that shows nothing, for a standard error that is not a terminal."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return

    def step_aside(self) -> None:
        """There is nothing in the way."""

    def update(self, *, done_bytes: int, records: int) -> None:
        """Nothing is shown."""


def open_progress(description: str, size_bytes: int | None, *, counts_records: bool = True) -> ProgressBar | NoProgress:
    """The bar, if there is a terminal to draw it on; without `counts_records` it shows bytes alone."""
    import sys

    if not sys.stderr.isatty():
        return NoProgress()
    from rich.console import Console

    return ProgressBar(printable(description), size_bytes, Console(stderr=True), counts_records=counts_records)


class StartBar:
    """The progress of a server's start, once it takes longer than PATIENCE_S: logs, bytes scanned, rate, time left."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __call__(self, progress: StartProgress) -> None:
        elapsed = time.perf_counter() - self._begin
        if elapsed < PATIENCE_S or progress.logs_done == progress.logs:
            self.close()
            return
        if self._progress is None:
            self._open()
        assert self._progress is not None
        assert self._task is not None
        # Without anything to scan it is the number of logs that takes the time.
        done, total = (
            (progress.scanned_bytes, progress.scan_bytes) if progress.scan_bytes else (progress.logs_done, progress.logs)
        )
        logs = f"{progress.logs_done:,} of {progress.logs:,} logs"
        rate = f"{progress.scanned_bytes / elapsed / MB:,.0f} MB/s" if progress.scan_bytes else ""
        self._progress.update(self._task, completed=done, total=total, logs=logs, rate=rate, refresh=True)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("recovering {task.fields[logs]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", logs="", rate="")
        self._progress.start()

    def close(self) -> None:
        """Take the bar away: log lines follow."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
