"""`tests/recipes`: a test in another language starts triolog, uses it with a client of that language, and stops it.

`docs/other-languages.md` has the text of these projects.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.clients.external_programs import NPM_INSTALL, ProgramUnavailableError, recipe, unavailable
from tests.support.server_process import COMMAND, environment

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "other-languages.md").read_text(encoding="utf-8")
SOURCES: Final = ROOT / "tests" / "recipes"
PRINTED: Final = (".js", ".go", ".java", ".rs", ".toml")
"""Endings of the files that the page shows."""
DEADLINE_S: Final = 300.0
BROKEN: Final = "#!/bin/sh\necho the reason why nothing starts >&2\nexit 3\n"
RECORDED: Final = """#!/bin/sh
echo $$ >> "$PIDS"
exec {command} "$@"
"""


@attrs.frozen
class Recipe:
    """`build`: installs dependencies. `test`: runs the tests. `passed`: a part of the output of `test`."""

    build: tuple[str, ...]
    test: tuple[str, ...]
    passed: str


RECIPES: Final = {
    "node": Recipe(build=NPM_INSTALL, test=("node", "--test"), passed="# pass 1\n# fail 0"),
    "go": Recipe(
        build=("go", "test", "-c", "-p", "2", "-o", "orders.test", "."), test=("./orders.test", "-test.v"), passed="\nPASS\n"
    ),
    "java": Recipe(
        build=("mvn", "-B", "-q", "test-compile"), test=("mvn", "-B", "test"), passed="Tests run: 1, Failures: 0, Errors: 0"
    ),
    "rust": Recipe(
        build=("cargo", "test", "--quiet", "--no-run"), test=("cargo", "test", "--offline"), passed="test result: ok. 1 passed"
    ),
}

LONG: Final = ("java", "rust")
"""They cost 20 and 50 seconds of a processor on a machine that has compiled nothing yet."""
LANGUAGES: Final = [pytest.param(each, marks=[pytest.mark.long] if each in LONG else []) for each in RECIPES]


def run(language: str, tmp_path: Path, triolog: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a recipe with `triolog`, a script, as the first one on the path."""
    try:
        folder = recipe(language, *RECIPES[language].build)
    except ProgramUnavailableError as exc:
        unavailable(str(exc))
    (programs := tmp_path / "bin").mkdir()
    (programs / "triolog").write_text(triolog)
    (programs / "triolog").chmod(0o755)
    (temporary := tmp_path / "temporary").mkdir()
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": str(temporary),
        "PIDS": str(tmp_path / "pids"),
    }
    return subprocess.run(
        RECIPES[language].test,
        cwd=folder,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_page_has_the_text_of_every_recipe_and_nothing_else() -> None:
    files = [each for language in RECIPES for each in SOURCES.glob(f"{language}/**/*") if each.suffix in PRINTED]
    files.remove(SOURCES / "rust" / "src" / "lib.rs")  # a package of Rust needs one, and this has one line
    assert {each.relative_to(SOURCES).parts[0] for each in files} == RECIPES.keys()
    wanted = {str(each.relative_to(SOURCES)).partition("/")[2]: each.read_text(encoding="utf-8") for each in files}
    assert dict(re.findall(r"^`([\w./]+)`:\n```(?!yaml)\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)) == wanted
    assert PAGE.count("\n```") == 2 * (len(wanted) + 1), "the page has one more block, for a CI service"


@pytest.mark.merge
@pytest.mark.timeout(1_200)  # a fresh machine fetches and compiles the clients
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_recipe_passes_and_leaves_no_server_and_no_folder(language: str, tmp_path: Path) -> None:
    outcome = run(language, tmp_path, RECORDED.format(command=" ".join(COMMAND)))
    assert outcome.returncode == 0, outcome.stdout
    assert RECIPES[language].passed in outcome.stdout
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert list((tmp_path / "temporary").glob("triolog*")) == []


@pytest.mark.merge
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_recipe_fails_with_the_reason_where_no_server_starts(language: str, tmp_path: Path) -> None:
    outcome = run(language, tmp_path, BROKEN)
    assert outcome.returncode != 0, outcome.stdout
    assert "the reason why nothing starts" in outcome.stdout
