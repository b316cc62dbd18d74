"""`triolog spark demo` with a real server and a real job that is really killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from triolog.tools.cli.main import main
from triolog.tools.spark.demo.command import command

ROWS: Final = 1000
HALF_AS_MANY_BATCHES: Final = """
from functools import partial
from triolog.tools.cli.main import main
from triolog.tools.spark.demo import story

story.BATCHES //= 2
story.kill_points = partial(story.kill_points, batches=story.BATCHES)
main()
"""
"""The command; each batch of a streaming query takes a second or more, whatever is in it."""


@pytest.mark.merge
@pytest.mark.timeout(900)
def test_the_demo_runs_and_every_check_holds(tmp_path: Path, jvm_options: str) -> None:
    picture = tmp_path / "delay.png"
    arguments = ["--rows", str(ROWS), "--json", "--data-dir", str(tmp_path / "data"), "--picture", str(picture)]
    command_line = [sys.executable, "-c", HALF_AS_MANY_BATCHES, "spark", "demo", *arguments]
    environ = os.environ | {"JDK_JAVA_OPTIONS": jvm_options}
    run = subprocess.run(command_line, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert figures["ok"]
    assert [check for check in figures["checks"] if not check["ok"]] == []
    assert len(figures["checks"]) == 8
    assert [kill["part"] for kill in figures["kills"]] == ["departures", "hours"]
    assert (figures["rows"], figures["departures"], figures["dropped_by_watermark"]) == (ROWS, ROWS, 0)
    assert figures["parquet_rows"] == figures["hours"] > ROWS * 2 // 3
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_has_no_place_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """And not after the minutes that the job takes."""
    arguments = ["--picture", str(tmp_path / "none" / "delay.png"), "--data-dir", str(tmp_path / "data")]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'}" in result.output
    assert not (tmp_path / "data").exists()


def test_the_commands_are_those_of_triolog_spark() -> None:
    result = CliRunner().invoke(main, ["spark", "--help"])
    assert result.exit_code == 0
    for name in ("init", "demo", "bench"):
        assert f"  {name} " in result.output
