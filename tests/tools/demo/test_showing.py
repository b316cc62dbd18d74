from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from triolog.protocol.errors import TriologError
from triolog.tools.demo.processes import ProcessFailedError
from triolog.tools.demo.showing import Demo, DemoError, check_empty, run


@pytest.mark.parametrize(
    ("broke_off", "exit_code"),
    [
        (ProcessFailedError("gone"), 3),
        (TriologError("gone"), 1),
        (OSError("gone"), 1),
        (DemoError("gone", 2), 2),
        (ExceptionGroup("", [ExceptionGroup("", [ProcessFailedError("gone")])]), 3),
    ],
)
def test_a_story_that_breaks_off_is_one_line(broke_off: Exception, exit_code: int) -> None:
    async def story() -> None:
        raise broke_off

    with pytest.raises(DemoError, match=r"gone$") as caught:
        run(story)
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize("broke_off", [KeyboardInterrupt(), BaseExceptionGroup("", [KeyboardInterrupt()]), KeyError()])
def test_an_interrupt_ends_a_story_as_itself_and_so_does_a_fault_of_the_program(broke_off: BaseException) -> None:
    async def story() -> None:
        raise broke_off

    with pytest.raises((KeyboardInterrupt, KeyError)):
        run(story)


def test_a_demo_fails_without_a_check_and_with_one_that_failed(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    demo = Demo(is_quiet=True)
    with pytest.raises(DemoError):
        demo.end(seed=7)
    demo.figures = {"seconds": 1.23456, "rows": 3}
    demo.check("a", True, "as it is to be")
    demo.end(seed=7)
    capsysbinary.readouterr()
    demo.check("b", False, "1 of 2")
    with pytest.raises(DemoError, match=r"^b: 1 of 2$"):
        demo.end(seed=7, data_dir=Path("here"), picture=None)
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["ok"], found["seed"], found["seconds"], found["rows"]) == (False, 7, 1.235, 3)
    assert (found["data_dir"], found["picture"], found["checks"][1]["name"]) == ("here", None, "b")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    check_empty(None)
    check_empty(tmp_path)
    check_empty(tmp_path / "new")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(click.UsageError, match="is not empty"):
        check_empty(tmp_path)
