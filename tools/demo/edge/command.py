"""`triolog edge-demo`: where it runs, what is seen. The story itself is `story`'s."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from ..ending import DemoFindings, NotInstalledError, find_flights, run


@click.command
@click.option("--to", metavar="HOST:PORT", help="Another upstream than the demo's own: a Kafka without TLS and login.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides how much is upstream when everything is killed.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, and nothing else.")
def command(to: str | None, seed: int, as_json: bool) -> None:
    """A week of real flights on a disk of 64 MiB without an uplink, then a slow uplink and a SIGKILL, and what arrives.

    As root the disk is a file system of its own; without, log_max_bytes stands for it. Topics that are made at an upstream of
    yours are named edge-demo-<number>.<topic>, and are deleted at the end. Exit code 0 when everything adds up, 1 when it does
    not, 2 when something is not installed, 3 when a process failed.
    """
    source = find_flights()
    if importlib.util.find_spec("confluent_kafka") is None:
        raise NotInstalledError("forwarding needs confluent_kafka: pip install 'triolog[forward]'")
    with _until_told_to_end(), tempfile.TemporaryDirectory(prefix="triolog-edge-demo-") as name:
        findings = _tell(source, _address(to), seed, Path(name), is_quiet=as_json)
    if as_json:
        click.echo(findings.to_json(seed=seed))
    findings.judge()


@contextlib.contextmanager
def _until_told_to_end() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: something is mounted, and processes run."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise click.UsageError(f"--to {text}: HOST:PORT is what it takes")
    return host.strip("[]"), int(port)


def _tell(source: Path, to: tuple[str, int] | None, seed: int, work_dir: Path, *, is_quiet: bool) -> DemoFindings:
    from ..flights import load_flights
    from ..terminal import open_console
    from .small_disk import small_disk
    from .story import run_edge_story
    from .terminal import EdgeTerminal
    from .upstream import UnreadableError
    from .week import in_a_week

    begin = time.perf_counter()
    console = open_console(quiet=is_quiet)
    gc.disable()  # what is loaded stays: collections would find nothing and take a third of the time
    try:
        with console.status("reading the source") if console.is_terminal else contextlib.nullcontext():
            week = in_a_week(load_flights(source), time.time_ns() // 1_000_000)
        gc.freeze()
    finally:
        gc.enable()
    terminal = EdgeTerminal(console, week)
    try:
        with small_disk(work_dir) as disk:
            story = partial(run_edge_story, week, disk, work_dir, to, seed, terminal)
            findings = run(story, failures=(UnreadableError,))
    finally:
        terminal.close()
        gc.unfreeze()
    terminal.ended(findings.failed_count, len(findings.checks), time.perf_counter() - begin)
    return findings
