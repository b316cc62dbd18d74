from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import triolog.tools.client

FOLDER = Path(*triolog.tools.client.__path__)
MODULES = sorted(
    ".".join(("triolog.tools.client", *path.relative_to(FOLDER).with_suffix("").parts))
    for path in FOLDER.rglob("*.py")
    if path.stem != "__init__"
)
WITHOUT_TRIO = [name for name in MODULES if ".blocking." in name]


def imported_by(*modules: str) -> set[str]:
    """The top packages, and triolog's parts, that a fresh interpreter has after importing `modules`."""
    program = (
        f"import json, sys\nfor name in {modules!r}: __import__(name)\n"
        "print(json.dumps(['.'.join(name.split('.')[:2]) if name.startswith('triolog.') else name.split('.')[0]"
        " for name in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return set(json.loads(result.stdout))


def test_client_imports_neither_the_server_nor_the_command_lines_libraries_and_the_blocking_one_no_trio() -> None:
    imported = imported_by(*MODULES)
    assert "triolog.protocol" in imported
    assert not imported & {"triolog.server", "rich", "click"}
    assert len(WITHOUT_TRIO) > 1
    assert "trio" not in imported_by(*WITHOUT_TRIO)
