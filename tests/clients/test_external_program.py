"""What becomes of a question that a program of another language does not answer."""

from __future__ import annotations

import re
import sys

import pytest

from tests.clients.external_program import ExternalError, ExternalProgram

ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    told = {"error": "not now"} if asked["op"] == "fail" else {"result": asked["op"]}
    print(json.dumps({"id": asked["id"], **told}), flush=True)
"""
MUTE = "import sys; sys.stdin.read()"
ENDS = "import sys; sys.stdin.readline(); sys.exit(3)"


def test_a_program_answers_or_says_what_went_wrong() -> None:
    with ExternalProgram.running("echo", [sys.executable, "-c", ECHO]) as program:
        assert program.ask("one") == "one"
        with pytest.raises(ExternalError, match="echo: fail: not now"):
            program.ask("fail")
        assert program.ask("two", records=["x" * 1_000_000]) == "two"


def test_a_question_without_an_answer_is_named_with_its_program_which_is_ended() -> None:
    with ExternalProgram.running("mute", [sys.executable, "-c", MUTE]) as program:
        with pytest.raises(TimeoutError, match=re.escape('mute did not answer within 0.05 s: {"id": 0, "op": "join"')):
            program.ask("join", deadline_s=0.05, group="g")
        with pytest.raises(AssertionError, match="mute ended with -9 at commit"):
            program.ask("commit")


def test_a_program_that_ends_is_told_with_its_exit_code() -> None:
    with (
        ExternalProgram.running("short", [sys.executable, "-c", ENDS]) as program,
        pytest.raises(AssertionError, match="short ended with 3 at join"),
    ):
        program.ask("join")
