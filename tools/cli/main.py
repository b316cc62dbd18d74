"""The `triolog` command: its name, its version, and the table of its subcommands.

Each subcommand is a module, imported only when it is called: `triolog serve` must not pay for tables and progress bars,
and `triolog --help` for nothing at all. What the help shows beside a name is therefore kept here, not read from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

import attrs
import click
from click.shell_completion import CompletionItem

from .terminal.failures import EXIT_INTERRUPTED, OutputClosedError
from .terminal.grammar import Group, one_line_errors


@attrs.frozen
class Subcommand:
    """The module of a subcommand, and the line that the help of `triolog` shows for it."""

    module: str
    """Holds a `click.Command` called `command`."""
    help: str
    section: str = "Commands"
    """The heading in the help."""
    is_in_clone: bool = False
    """The wheel does not have it: no program needs it."""


DATA: Final = "Data"
ADMINISTRATION: Final = "Administration"
FILES: Final = "Files of a stopped server"
INTEGRATIONS: Final = "Integrations"
DEMOS: Final = "Demos"


def _cli(module: str, text: str, section: str) -> Subcommand:
    return Subcommand(f"triolog.tools.cli.{module}", text, section)


def _in_clone(module: str, text: str) -> Subcommand:
    return Subcommand(f"triolog.tools.{module}", text, DEMOS, is_in_clone=True)


SUBCOMMANDS: Final[Mapping[str, Subcommand]] = {
    "serve": _cli("serve", "Run a server, by default on ./triolog-data.", DATA),
    "topics": _cli("topics.command", "Create, list, describe, change and delete topics.", DATA),
    "produce": _cli("produce", "Send messages, lines, JSON, CSV or rows of a table to a topic.", DATA),
    "consume": _cli("consume", "Print records from a position on: an offset, a time, the start, the end.", DATA),
    "sql": _cli("sql.command", "Query topics with SQL.", DATA),
    "offsets": _cli("offsets", "Look up the offset of a position in each partition.", DATA),
    "status": _cli("status", "Show on one screen whether a server works. The exit code is for scripts.", ADMINISTRATION),
    "doctor": _cli("doctor.command", "Find problems, and write one file for a maintainer.", ADMINISTRATION),
    "top": _cli("top.command", "Watch a running server: rates, lag, disk, loss window.", ADMINISTRATION),
    "console": _cli("console", "Show a running server in the browser.", ADMINISTRATION),
    "groups": _cli("groups.command", "List, describe, reset and delete groups.", ADMINISTRATION),
    "transactions": _cli("transactions.command", "List, describe and abort transactions.", ADMINISTRATION),
    "connections": _cli("connections.command", "List the connections to a server.", ADMINISTRATION),
    "users": _cli("users", "List, add and remove users who log in with SCRAM.", ADMINISTRATION),
    "acls": _cli("acls", "List, add and remove access rules.", ADMINISTRATION),
    "quotas": _cli("quotas.command", "List, set and remove client quotas.", ADMINISTRATION),
    "config": _cli("config", "Show the server's keys with their values and sources.", ADMINISTRATION),
    "gaps": _cli("gaps.command", "List and acknowledge data lost to corruption.", ADMINISTRATION),
    "mirror": _cli("mirroring.status", "Show which topics a server copies from another one, and the lag.", ADMINISTRATION),
    "promote": _cli("mirroring.promote", "Make the mirrors of a server writable.", ADMINISTRATION),
    "backup": _cli("backup", "Copy the data of a running server.", ADMINISTRATION),
    "du": _cli("du", "Show how topics use the disk.", ADMINISTRATION),
    "explain": _cli("explain", "Show how the server finds a position.", ADMINISTRATION),
    "dump": _cli("dump.command", "Show and check the files of a log.", FILES),
    "verify": _cli("verify", "Check every file of a log directory.", FILES),
    "repair": _cli("repair", "Repair a damaged log directory without deleting a byte.", FILES),
    "reindex": _cli("reindex", "Rebuild the indexes of a log.", FILES),
    "compact": _cli("compact", "Compact a topic now.", FILES),
    "demote": _cli("mirroring.demote", "Make the topics of a server mirrors of another one.", FILES),
    "export": _cli("exporting.command", "Print records, or write them to files by day.", FILES),
    "export-kafka": _cli("export_kafka", "Move a log directory to Apache Kafka.", FILES),
    "forward": _cli("forward.command", "Forward records to a Kafka cluster, in order and exactly once.", INTEGRATIONS),
    "ingest": _cli("ingest", "Store the messages of an MQTT broker, acknowledged when durable.", INTEGRATIONS),
    "spark": Subcommand("triolog.tools.spark.command", "Spark jobs, pipelines, a demo and a benchmark.", INTEGRATIONS),
    "completion": _cli("completion", "Complete commands and options in bash, zsh or fish.", INTEGRATIONS),
    "version": _cli("version", "Print the version.", INTEGRATIONS),
    "demo": _in_clone("demo.command", "See every feature with a year of real flights."),
    "edge-demo": _in_clone("demo.edge.command", "Run a week without an uplink on a small disk."),
    "damage-demo": _in_clone("demo.damage", "Flip one bit, and read on with an ordinary Kafka consumer."),
    "bench": _in_clone("bench.command", "Measure speed and memory beside bare loops."),
    "bench-kafka": _in_clone("bench.kafka.command", "Measure speed and memory beside Apache Kafka and kfake."),
}

EPILOG: Final = """\b
Exit codes: 0 done; 1 the request was refused or a check failed;
2 wrong command line; 3 the server cannot be reached or cannot start;
130 interrupted.

\b
Shell completion (bash; zsh and fish: triolog completion -h):
  eval "$(triolog completion bash)"
"""


class LazyGroup(Group):
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
                f"{cmd_name} is not in the wheel, only in triolog's repository. Run it in a clone"
            ) from exc
        assert isinstance(command, click.Command), f"{subcommand.module}.command is a {type(command).__name__}"
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with one_line_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, but Ctrl-C ends quietly with the code that shells give it, and `| head` is no failure."""
        try:
            with one_line_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except OutputClosedError:
            raise click.exceptions.Exit(0) from None
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.ClickException as exc:
            from .terminal.output import printable

            object.__setattr__(exc, "message", printable(exc.message))
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
        """In sections. No subcommand is imported."""
        for section, commands in groupby(self._subcommands.items(), key=lambda item: item[1].section):
            with formatter.section(section):
                formatter.write_dl([(name, subcommand.help) for name, subcommand in commands])


@click.group(
    "triolog",
    cls=LazyGroup,
    subcommands=SUBCOMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(None, "-V", "--version", package_name="triolog", prog_name="triolog", message="%(prog)s %(version)s")
def main() -> None:
    """A log server that stores logs the way Apache Kafka does."""
