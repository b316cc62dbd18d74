"""`triolog repair`: put a stopped log directory right without deleting a byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from .terminal.failures import EXIT_FAILED
from .terminal.findings import Findings, finding_row, finding_text, say_after
from .terminal.output import count_text, flush, json_line, json_option, printable, say, write
from .terminal.progress import open_progress
from .terminal.shapes import fields
from .terminal.stopped import directory_argument, relative, stopped, topics_option

if TYPE_CHECKING:
    from ...server.offline.repair import Action
    from ...server.offline.repair_directory import RepairSummary
    from ...server.storage.directory.inventory import StoppedDirectory
    from .terminal.progress import NoProgress, ProgressBar

_COLOURS: Final = {"quarantine": "red", "left": "red", "restore": "green", "rebuild": "green"}
_KIND_WIDTH: Final = 10


@click.command
@directory_argument
@topics_option
@click.option("--dry-run", is_flag=True, help="Print the repairs without doing them.")
@json_option
def command(directory: str, topics: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Repair the damage that `triolog verify` reports in the log directory DIR, or in one partition's directory.

    Bytes that are not a batch go to side files, and their offsets become a recorded gap. Indexes, snapshots and checkpoints are
    rebuilt, and the replaced files stay as *.corrupt-*. The command deletes no byte, checks its own result, and does nothing in
    a second run. Start with --dry-run. Stop the server first. --json prints JSON lines.

    Exit code 0: no damage is left. 1: damage is left, or --dry-run found some. 3: the directory cannot be read or is in use.
    """
    from ...server.offline.repair_directory import repair_directory

    with stopped(directory, topics, writes=not dry_run) as (fs, found):
        with open_progress("checking", sum(files.log_bytes for files in found.partitions)) as bar:
            observer = Findings(found, bar, as_json=as_json, quiet=True)
            printer = _Printer(found, bar, as_json=as_json, dry_run=dry_run)
            summary = repair_directory(fs, found, observer, dry_run=dry_run, acted=printer.action)
        printer.end(summary)
    is_left = summary.left or any(action.kind == "left" for action in summary.actions)
    if is_left or (dry_run and summary.damages):
        raise click.exceptions.Exit(EXIT_FAILED)


class _Printer:
    """A line for each action and one for all."""

    def __init__(self, directory: StoppedDirectory, bar: ProgressBar | NoProgress, *, as_json: bool, dry_run: bool) -> None:
        self._directory = directory
        self._bar = bar
        self._as_json = as_json
        self._dry_run = dry_run

    def action(self, action: Action) -> None:
        self._bar.step_aside()
        where = relative(action.file, self._directory)
        if self._as_json:
            row = {"type": "action", "kind": action.kind, "file": where}
            write(json_line({**row, **fields(action, "first_offset", "next_offset", "text")}))
            return
        offsets = ""
        if action.first_offset is not None and action.next_offset is not None and action.next_offset > action.first_offset:
            offsets = f" (offsets {action.first_offset} to {action.next_offset - 1})"
        text = f"{where}{offsets}: {printable(action.text)}"
        say_after(f"{action.kind:<{_KIND_WIDTH}}", text, fg=_COLOURS.get(action.kind, "yellow"))

    def end(self, summary: RepairSummary) -> None:
        for finding in summary.left:
            if self._as_json:
                write(json_line({"type": "left", **finding_row(finding, self._directory)}))
            else:
                say_after(f"{'left':<{_KIND_WIDTH}}", finding_text(finding, self._directory), fg="red", bold=True)
        counts = {"damages": summary.damages, "actions": len(summary.actions), "left": len(summary.left)}
        if self._as_json:
            write(json_line({"type": "verdict", "ok": not summary.left, "dry_run": self._dry_run, **counts}))
        else:
            say(self._sum(summary))
        flush()

    def _sum(self, summary: RepairSummary) -> str:
        if not summary.damages and not summary.actions:
            return "nothing is damaged"
        damages, actions = count_text(summary.damages, "damage"), count_text(len(summary.actions), "action")
        if self._dry_run:
            return f"{damages}: {actions} planned; nothing was changed"
        left = f"{count_text(len(summary.left), 'damage')} left" if summary.left else "checked again: no damage is left"
        return f"{damages}: {actions} taken, no byte deleted; {left}"
