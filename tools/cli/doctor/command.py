"""`triolog doctor`: problems of directories and servers, the next steps, and one file for a maintainer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..terminal.failures import EXIT_FAILED, UnreadableError
from ..terminal.output import count_text, draw, json_option, print_json, printable, say, table
from ..terminal.progress import open_progress
from ..terminal.remote import ServerAddress, login_options, read_address
from ..terminal.shapes import columns

if TYPE_CHECKING:
    from .directory import Inspection
    from .report import Found

T = TypeVar("T")

GRACE_S: Final = 30.0
"""After the time for verifying: for everything else that is read in a directory. A device can hang indefinitely."""


def _read_targets(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str | ServerAddress]:
    """Directories as paths, anything else as the address of a server."""
    if missing := [each for each in values if os.sep in each and not Path(each).is_dir()]:
        raise click.BadParameter(f"{missing[0]!r} is not a directory", ctx, param)
    return [str(Path(each).absolute()) if Path(each).is_dir() else read_address(ctx, param, each) for each in values]


@click.command
@click.argument("targets", metavar="DIR|HOST:PORT...", nargs=-1, required=True, callback=_read_targets)
@click.option("-c", "--config", "config_file", type=click.Path(dir_okay=False), help="TOML file with the server's keys.")
@click.option("--log", "log_file", metavar="FILE", help="The server's log; - is standard input, for journalctl.")
@click.option("--output", metavar="FILE", help="File of the report. [default: triolog-doctor-TIME.zip]")
@click.option(
    "--seconds",
    type=click.IntRange(1, 86_400),
    default=60,
    show_default=True,
    help="Verify files of a directory for N seconds.",
)
@login_options
@json_option
def command(
    targets: list[str | ServerAddress],
    config_file: str | None,
    log_file: str | None,
    output: str | None,
    seconds: int,
    as_json: bool,
) -> None:
    """Find problems of log directories and servers, and write one file for a maintainer.

    DIR is a log directory, also that of a running server: nothing is written there and no lock is taken. HOST:PORT is a
    native port, or a Kafka port, whose advertised addresses are then tried. Name both of a server, and its log. The
    symptoms and the next steps are those of the page Troubleshooting.

    The report has versions, configuration, statistics, the names and sizes of files, the result of verify, and the last lines
    of the log. It has names of topics and groups, but no secret and no content of a record. Read it before you send it.

    Exit code 0: no problem. 1: a problem. 2: wrong command line. 3: the report or the log file cannot be written or read.
    """
    from . import report
    from .redaction import Redaction

    redaction = Redaction.of(os.environ, config_file)
    keys = report.configuration(config_file)
    found: list[Found] = []
    parts: dict[str, Any] = {"system.json": report.system(), "configuration.json": keys}
    kinds = set()
    if "error" in keys:
        found.append(report.named("configuration-wrong", config_file or "the variables", keys["error"]))
    inspections = []
    for number, target in enumerate(targets, start=1):
        kind = "directory" if isinstance(target, str) else "server"
        kinds.add(kind)
        inspections.append(_inspect(target, seconds, keys))
        parts[f"{kind}-{number}.json"] = {"target": str(target), "shape": inspections[-1].shape}
        if kind == "directory":
            parts[f"verify-{number}.json"] = inspections[-1].verified
    found += _of_inspections(inspections)
    if log_file is not None:
        kinds.add("log")
        found += _read_log(log_file, redaction, parts)
    cleaned = [report.Found(each.symptom, redaction.text(each.target), redaction.text(each.evidence)) for each in found]
    summary: dict[str, Any] = {
        "format_version": 1,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "findings": [each.as_json() for each in cleaned],
        "checks": report.checks_of(kinds, found),
    }
    texts = {name: part if isinstance(part, str) else redaction.clean(part) for name, part in parts.items()}
    path = output or f"triolog-doctor-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.zip"
    _write(
        path,
        [each for each in targets if isinstance(each, str)],
        {**texts, "report.json": summary, "report.txt": report.in_words(cleaned)},
    )
    if as_json:
        print_json({"file": path, **summary})
    else:
        _show(cleaned, summary["checks"], path)
    if any(each.symptom.is_problem for each in found):
        raise click.exceptions.Exit(EXIT_FAILED)


def _inspect(target: str | ServerAddress, seconds: int, keys: dict[str, Any]) -> Inspection:
    from .directory import Inspection, inspect_directory
    from .server import inspect_server

    if isinstance(target, ServerAddress):
        return inspect_server(target)
    reserve = int(keys.get("disk_reserve_bytes", {"value": -1})["value"])
    with open_progress("verifying", None) as bar:
        done = _within(seconds + GRACE_S, lambda: inspect_directory(target, seconds=seconds, reserve_bytes=reserve, bar=bar))
    if done is None:
        done = Inspection(target)
        done.found("files-unreadable", f"{target} could not be read within {seconds + GRACE_S:.0f} s: the device hangs")
    return done


def _within(seconds: float, function: Callable[[], T]) -> T | None:
    """Return the result of a function; None where it takes longer. Its thread then ends with the process. Raises its error."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else None


def _of_inspections(inspections: list[Inspection]) -> list[Found]:
    """The symptoms of all targets."""
    from .directory import in_words
    from .report import named

    return [named(name, each.path, text) for each in inspections for name, text in in_words(each.evidence).items()]


def _read_log(log_file: str, redaction: Any, parts: dict[str, Any]) -> list[Found]:
    from .log_lines import grouped, read_log
    from .report import Found

    try:
        lines, symptoms = read_log(log_file, redaction)
    except OSError as exc:
        raise UnreadableError(f"{printable(log_file)}: {exc.strerror or exc}") from exc
    parts["log.txt"] = "".join(f"{printable(line)}\n" for line in lines)
    return [Found(symptom, "log", text) for symptom, text in grouped(symptoms)]


def _write(path: str, directories: list[str], parts: dict[str, Any]) -> None:
    """Raises UnreadableError."""
    from .report import write_report

    folder = Path(path).absolute().parent
    if inside := [each for each in directories if Path(each) in (folder, *folder.parents)]:
        raise UnreadableError(
            f"{printable(path)} would be in the log directory {printable(inside[0])}. Name another --output FILE"
        )
    try:
        write_report(path, parts)
    except OSError as exc:
        raise UnreadableError(f"cannot write {printable(path)}: {exc.strerror or exc}. Name another --output FILE") from exc


def _show(found: list[Found], checks: list[dict[str, Any]], path: str) -> None:
    looked = sum(each["result"] != "not looked for" for each in checks)
    if found:
        ordered = sorted(found, key=lambda each: not each.symptom.is_problem)
        rows = [
            (each.symptom.name, f"{each.target}: {each.evidence}", each.symptom.cause, each.symptom.next_step)
            for each in ordered
        ]
        draw(table(columns("<symptom", "<evidence", "<reason", "<next step"), rows))
    problems = sum(each.symptom.is_problem for each in found)
    say(
        f"{count_text(looked, 'symptom')} looked for: {count_text(problems, 'problem')}, "
        f"{count_text(len(found) - problems, 'note')}"
    )
    say(f"report for a maintainer: {path}. Read it before you send it")
