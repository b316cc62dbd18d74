"""`triolog spark init`: a folder with a declarative pipeline (`spark-pipelines`) that reads from and writes to triolog.

The files are those of `pipeline_template`, with the server, the topics and the place of the checkpoints filled in.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Final

import click

from ...protocol.errors import TriologError
from ..cli.terminal.output import say

FILES: Final = {
    "spark-pipeline.yml": "spark-pipeline.yml",
    "spark-defaults.conf": "conf/spark-defaults.conf",
    "departures.py.template": "transformations/departures.py",
    "run.py.template": "run.py",
}
"""In the template -> in the folder. Python files of the template do not end in `.py`: they are no part of this package."""
PLAIN: Final = re.compile(r"[\w.:\[\]-]+")
"""What may be filled in: nothing that would end a string of YAML or Python."""


class PipelineExistsError(TriologError):
    """The folder holds something already."""


@click.command
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--server", "servers", default="localhost:9095", show_default=True, help="Address of the server.")
@click.option("--topic", default="flights", show_default=True, help="Topic to read.")
@click.option("--target", default="departures", show_default=True, help="Topic to write (must exist).")
def command(folder: Path, servers: str, topic: str, target: str) -> None:
    """Write a declarative pipeline into FOLDER, which must be new or empty.

    It needs the extra `pipelines`. Exit code 1 when the folder is not empty or cannot be written.
    """
    for option, value in (("--server", servers), ("--topic", topic), ("--target", target)):
        if not PLAIN.fullmatch(value):
            raise click.BadParameter(f"{value!r} has characters other than letters, digits and .:-_[]", param_hint=option)
    try:
        written = write_pipeline(folder, servers=servers, topic=topic, target=target)
    except PipelineExistsError as exc:
        raise click.ClickException(str(exc)) from exc
    except OSError as exc:
        raise click.ClickException(f"{exc.filename or folder}: {exc.strerror or exc}") from exc
    for path in written:
        say(f"wrote {path}")
    say(f"run it: python {folder / 'run.py'}")


def write_pipeline(folder: Path, *, servers: str, topic: str, target: str) -> list[Path]:
    """Fill the template in; the files written. PipelineExistsError when the folder is not empty, OSError."""
    if folder.exists() and any(folder.iterdir()):
        raise PipelineExistsError(f"{folder} is not empty. Use a new or an empty folder")
    filled = {
        "@NAME@": re.sub(r"\W", "_", folder.resolve().name) or "pipeline",
        "@FOLDER@": str(folder.resolve()),
        "@STORAGE@": (folder.resolve() / "storage").as_uri(),
        "@SERVERS@": servers,
        "@TOPIC@": topic,
        "@TARGET@": target,
    }
    template = resources.files(__package__) / "pipeline_template"
    written = []
    for name, place in FILES.items():
        text = (template / name).read_text(encoding="utf-8")
        for mark, value in filled.items():
            text = text.replace(mark, value)
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
