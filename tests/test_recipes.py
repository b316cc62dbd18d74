"""`tests/recipes`: a test in another language starts triolog, uses it with a client of that language, and stops it.

`docs/other-languages.md` has the text of these projects.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.clients.external_programs import NPM_INSTALL, ProgramUnavailableError, recipe, unavailable
from tests.support.server_process import COMMAND, environment

DEADLINE_S: Final = 300.0
BROKEN: Final = "#!/bin/sh\necho the reason why nothing starts >&2\nexit 3\n"
RECORDED: Final = """#!/bin/sh
echo $$ >> "$PIDS"
exec {command} "$@"
"""


@attrs.frozen
class Recipe:
    """`build`: installs dependencies. `test`: runs the tests without a network. `passed`: a part of the output of `test`."""

    build: tuple[str, ...]
    test: tuple[str, ...]
    passed: str


RECIPES: Final = {
    "node": Recipe(build=NPM_INSTALL, test=("node", "--test"), passed="# pass 1\n# fail 0"),
    "go": Recipe(
        build=("go", "test", "-c", "-p", "2", "-o", "orders.test", "."), test=("./orders.test", "-test.v"), passed="\nPASS\n"
    ),
}

pytestmark = [pytest.mark.merge, pytest.mark.timeout(1_200)]  # a fresh machine fetches and compiles the clients


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


@pytest.mark.parametrize("language", RECIPES)
def test_a_recipe_passes_and_leaves_no_server_and_no_folder(language: str, tmp_path: Path) -> None:
    outcome = run(language, tmp_path, RECORDED.format(command=" ".join(COMMAND)))
    assert outcome.returncode == 0, outcome.stdout
    assert RECIPES[language].passed in outcome.stdout
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert list((tmp_path / "temporary").glob("triolog*")) == []


@pytest.mark.parametrize("language", RECIPES)
def test_a_recipe_fails_with_the_reason_where_no_server_starts(language: str, tmp_path: Path) -> None:
    outcome = run(language, tmp_path, BROKEN)
    assert outcome.returncode != 0
    assert "the reason why nothing starts" in outcome.stdout
