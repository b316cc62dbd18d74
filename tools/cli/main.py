"""The `triolog` command: its name, its version, and the table of its subcommands.

Each subcommand is a module, imported only when it is called: `triolog serve` must not pay for tables and progress bars,
and `triolog --help` for nothing at all. What the help shows beside a name is therefore kept here, not read from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import click
from click.shell_completion import CompletionItem

from .terminal.failures import EXIT_INTERRUPTED, OutputClosedError


@attrs.frozen
class Subcommand:
    """The module of a subcommand, and the line that the help of `triolog` shows for it."""

    module: str
    """Holds a `click.Command` called `command`."""
    help: str
    is_in_clone: bool = False
    """The wheel does not have it: no program needs it."""


SUBCOMMANDS: Final[Mapping[str, Subcommand]] = {
    "serve": Subcommand("triolog.tools.cli.serve", "Run a server on one or more data directories."),
    "topics": Subcommand("triolog.tools.cli.topics.command", "Create, list, describe, change and delete topics."),
    "produce": Subcommand("triolog.tools.cli.produce", "Send lines, JSON, CSV or rows of a table to a topic."),
    "consume": Subcommand("triolog.tools.cli.consume", "Print records, by offset or by time."),
    "sql": Subcommand("triolog.tools.cli.sql.command", "Ask topics a question in SQL."),
    "offsets": Subcommand("triolog.tools.cli.offsets", "Look up the offsets of a time in topics."),
    "groups": Subcommand("triolog.tools.cli.groups.command", "List, describe, reset and delete groups."),
    "transactions": Subcommand("triolog.tools.cli.transactions.command", "List, describe and abort transactions."),
    "connections": Subcommand("triolog.tools.cli.connections.command", "List who is connected to a server."),
    "gaps": Subcommand("triolog.tools.cli.gaps.command", "List what damage took out of logs, and accept it."),
    "quotas": Subcommand("triolog.tools.cli.quotas.command", "List, set and remove client quotas."),
    "forward": Subcommand("triolog.tools.cli.forward.command", "Hand records on to a Kafka upstream, in order and once."),
    "top": Subcommand(
        "triolog.tools.cli.top.command", "Watch a running server: rates, lag, disk, what a power cut could take."
    ),
    "console": Subcommand("triolog.tools.cli.console", "Show a running server in the browser."),
    "explain": Subcommand("triolog.tools.cli.explain", "Show how the server finds a time or an offset."),
    "dump": Subcommand("triolog.tools.cli.dump.command", "Show and check the files of a stopped log."),
    "verify": Subcommand("triolog.tools.cli.verify", "Check every file of a stopped log directory."),
    "repair": Subcommand("triolog.tools.cli.repair", "Put a damaged log directory right without deleting a byte."),
    "reindex": Subcommand("triolog.tools.cli.reindex", "Make the indexes of a stopped log anew."),
    "compact": Subcommand("triolog.tools.cli.compact", "Compact a topic of a stopped log directory now."),
    "export": Subcommand("triolog.tools.cli.exporting.command", "Print the records of a stopped log, or write files by day."),
    "du": Subcommand("triolog.tools.cli.du", "Show where the room on the disk goes."),
    "backup": Subcommand("triolog.tools.cli.backup", "Copy the data of a running server."),
    "export-kafka": Subcommand("triolog.tools.cli.export_kafka", "Move a stopped log directory to Apache Kafka."),
    "spark": Subcommand("triolog.tools.spark.command", "Spark jobs, pipelines, a demo and a benchmark."),
    "demo": Subcommand("triolog.tools.demo.command", "Show it all with a year of real flights.", is_in_clone=True),
    "edge-demo": Subcommand(
        "triolog.tools.demo.edge.command", "A week without an uplink on a small disk, and what arrives.", is_in_clone=True
    ),
    "damage-demo": Subcommand(
        "triolog.tools.demo.damage", "One flipped bit, and an ordinary Kafka consumer that reads on after it.", is_in_clone=True
    ),
    "bench": Subcommand("triolog.tools.bench.command", "Measure speed and memory beside bare loops.", is_in_clone=True),
    "bench-kafka": Subcommand(
        "triolog.tools.bench.kafka.command", "Measure speed and memory beside Apache Kafka and kfake.", is_in_clone=True
    ),
    "completion": Subcommand("triolog.tools.cli.reference.completion", "Let bash, zsh or fish complete commands and options."),
}

EPILOG: Final = """\b
Exit codes: 0 done; 1 the request was refused or a check failed; 2 wrong command line; 3 the server cannot be
reached or cannot start; 130 interrupted.

\b
Shell completion (bash; zsh and fish: triolog completion --help):
  eval "$(triolog completion bash)"
"""


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is called."""

    def __init__(self, *args: Any, subcommands: Mapping[str, Subcommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._subcommands = subcommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        subcommand = self._subcommands.get(cmd_name)
        if subcommand is None:
            return None
        try:
            command = importlib.import_module(subcommand.module).command
        except ModuleNotFoundError as exc:
            if not subcommand.is_in_clone or not subcommand.module.startswith(exc.name or "?"):
                raise
            raise click.ClickException(
                f"{cmd_name} is not in the wheel, but in triolog's repository: run it in a clone."
            ) from exc
        assert isinstance(command, click.Command), f"{subcommand.module}.command is a {type(command).__name__}"
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, but Ctrl-C ends quietly with the code that shells give it, and `| head` is no failure."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except OutputClosedError:
            raise click.exceptions.Exit(0) from None
        except click.ClickException as exc:
            from .terminal.output import in_lines, printable

            escaped = (in_lines if isinstance(exc, click.UsageError) else printable)(exc.message)  # click's have lines
            object.__setattr__(exc, "message", escaped)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, but without importing the subcommands."""
        names = [
            CompletionItem(name, help=subcommand.help)
            for name, subcommand in self._subcommands.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._subcommands:
            with formatter.section("Commands"):
                formatter.write_dl([(name, subcommand.help) for name, subcommand in self._subcommands.items()])


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS, epilog=EPILOG)
@click.version_option(package_name="triolog", prog_name="triolog", message="%(prog)s %(version)s")
def main() -> None:
    """A log server that stores logs the way Apache Kafka does."""
