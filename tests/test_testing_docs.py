"""docs/testing-with-triolog.md: its examples of pytest run, its words are those of the code. `test_docs.py` has its tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.server.fake import api
from triolog.server.fake.faults.rules import Rule

pytest_plugins = "pytester"

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "testing-with-triolog.md").read_text(encoding="utf-8")
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES: Final = [
    *(code for code in re.findall(r"```py\n(.*?)```", PAGE, flags=re.DOTALL) if "start_instance(" not in code),
    *re.findall(r"```py\n(.*?)```", README, flags=re.DOTALL),
]


def test_every_field_of_a_rule_is_explained() -> None:
    told = PAGE.split("## Faults")[1]
    assert [field.name for field in attrs.fields(Rule) if field.name != "trigger" and f"`{field.name}" not in told] == []


def test_every_call_of_the_control_port_has_its_place_in_the_table() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if re.match(r"\| `(GET|POST|DELETE) /", line)]
    calls = [call.split(" ") for row in rows for call in re.findall(r"`([^`]+)`", row)]
    told = {(method, re.sub(r"/[A-Z](?=/|$)", "/X", path.partition("?")[0])) for method, path in calls}
    assert {(route.method, re.sub(r"\([^)]+\)", "X", route.pattern)) for route in api.ROUTES} == told


def test_every_field_of_a_call_is_in_the_table() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| `(GET|POST|DELETE) /", line)]
    told = set(re.findall(r"\w+", " ".join(rows)))
    assert {field for route in api.ROUTES for field in route.fields or ()} - told == set()


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.merge if number else ()) for number in range(len(EXAMPLES))]
)
def test_the_examples_of_pytest_run(pytester: pytest.Pytester, number: int) -> None:
    if "oauth=True" in EXAMPLES[number]:
        pytest.importorskip("jwt")
    if "schema_registry_url" in EXAMPLES[number]:
        pytest.importorskip("avro")
        pytest.importorskip("authlib")
    pytester.makepyfile(EXAMPLES[number].replace("    ...\n    assert fault.fired == 1", "    assert fault.fired == 0"))
    outcome = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    outcome.assert_outcomes(passed=len(re.findall(r"^def test_", EXAMPLES[number], flags=re.MULTILINE)))
