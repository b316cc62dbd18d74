"""The README's programs run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

README: Final = Path(__file__).resolve().parent.parent / "README.md"
PROGRAMS: Final = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=[f"program {number}" for number in range(1, len(PROGRAMS) + 1)])
def test_a_program_of_the_readme_runs(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout
