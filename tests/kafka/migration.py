"""The steps of docs/kafka-migration.md, as a user takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner
from triolog.tools.cli.main import main

from tests.support.kafka_broker import KafkaBroker


def triolog(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def migrate(source: Path, broker: KafkaBroker, *, commands: Sequence[str] = (), export: Sequence[str] = ()) -> None:
    """The how-to: format, create the topics, stop, export. Kafka is not running afterwards. Options of both commands."""
    create_topics(source, broker, *commands)
    triolog("export-kafka", source, broker.log_directory, *export)


def create_topics(source: Path, broker: KafkaBroker, *options: str) -> None:
    """Everything before the export itself."""
    broker.format()
    broker.start()
    commands = triolog("export-kafka", source, "--print-commands", "--bootstrap-server", broker.address, *options)
    broker.run_commands([line for line in commands.splitlines() if not line.startswith("#")])
    broker.stop()
