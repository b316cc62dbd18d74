from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from triolog.protocol.errors import TriologError
from triolog.tools.demo.processes import ProcessFailedError
from triolog.tools.demo.showing import Demo, DemoError, working_folder


@pytest.mark.parametrize(
    ("broke_off", "exit_code"),
    [
        (ProcessFailedError("gone"), 3),
        (TriologError("gone"), 1),
        (OSError("gone"), 1),
        (DemoError("gone", 2), 2),
    ],
)
def test_a_story_that_breaks_off_is_one_line(broke_off: Exception, exit_code: int) -> None:
    with pytest.raises(DemoError, match=r"gone$") as caught, working_folder(None):
        raise broke_off
    assert caught.value.exit_code == exit_code


def test_a_demo_fails_without_a_check_and_with_one_that_failed(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    demo = Demo(is_quiet=True)
    with pytest.raises(DemoError):
        demo.end()
    demo.figures = {"seconds": 1.23456, "rows": 3}
    demo.check("a", True, "as it is to be")
    demo.end()
    capsysbinary.readouterr()
    demo.check("b", False, "1 of 2")
    with pytest.raises(DemoError, match=r"^b: 1 of 2$"):
        demo.end(Path("here"))
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["ok"], found["seconds"], found["rows"]) == (False, 1.235, 3)
    assert (found["data_dir"], found["checks"][1]["name"]) == ("here", "b")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(click.UsageError, match="is not empty"), working_folder(tmp_path):
        raise AssertionError("it cannot have begun")
