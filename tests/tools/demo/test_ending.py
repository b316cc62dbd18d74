from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from triolog.protocol.errors import TriologError
from triolog.tools.demo.checks import Check
from triolog.tools.demo.child import ServerFailedError
from triolog.tools.demo.ending import CheckFailedError, DemoFindings, ServerUnusableError, check_empty, run


class JobError(Exception):
    """A story's own."""


@pytest.mark.parametrize(
    ("broke_off", "ends_as", "exit_code"),
    [
        (ServerFailedError("gone"), ServerUnusableError, 3),
        (TriologError("gone"), CheckFailedError, 1),
        (OSError("gone"), CheckFailedError, 1),
        (JobError("gone"), CheckFailedError, 1),
        (ExceptionGroup("", [ExceptionGroup("", [ServerFailedError("gone")])]), ServerUnusableError, 3),
    ],
)
def test_what_breaks_a_story_off_is_one_line(broke_off: Exception, ends_as: type[click.ClickException], exit_code: int) -> None:
    async def story() -> DemoFindings:
        raise broke_off

    with pytest.raises(ends_as, match=r"gone$") as caught:
        run(story, failures=(JobError,))
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize("broke_off", [KeyboardInterrupt(), BaseExceptionGroup("", [KeyboardInterrupt()])])
def test_an_interrupted_story_is_interrupted(broke_off: BaseException) -> None:
    async def story() -> DemoFindings:
        raise broke_off

    with pytest.raises(KeyboardInterrupt):
        run(story)


def test_an_interrupt_ends_a_story_as_itself_and_so_does_a_fault_of_the_program() -> None:
    async def story() -> DemoFindings:
        raise JobError

    with pytest.raises(JobError):
        run(story)


def test_findings_are_judged_by_every_check() -> None:
    findings = DemoFindings(figures={"seconds": 1.23456, "rows": 3})
    assert not findings.all_held, "nothing was shown"
    findings.checks.append(Check("a", True, "as it is to be"))
    findings.judge()
    findings.checks.append(Check("b", False, "1 of 2"))
    assert findings.failed_count == 1
    with pytest.raises(CheckFailedError, match=r"^b: 1 of 2$"):
        findings.judge()
    found = json.loads(findings.to_json(seed=7, data_dir=Path("here"), picture=None))
    assert (found["ok"], found["seed"], found["seconds"], found["rows"]) == (False, 7, 1.235, 3)
    assert (found["data_dir"], found["picture"], found["checks"][1]["name"]) == ("here", None, "b")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    check_empty(None)
    check_empty(tmp_path)
    check_empty(tmp_path / "new")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(click.UsageError, match="is not empty"):
        check_empty(tmp_path)
