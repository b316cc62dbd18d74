"""`python -m tests.planted_faults.importing NAME MODULE [ARGUMENT...]`: run a module with a fault.

The fault is planted as its file is imported.
Nothing is copied or written, so this is quicker than `planting.Copy`. Processes that the module starts do not have the fault.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from tests.planted_faults.planting import ROOT, Fault, read_faults

HASH_SEED: Final = "0"
"""With which a simulated world is the same everywhere."""


class Planter(MetaPathFinder):
    """Finds the modules that there are, and plants `fault` in the one of its file."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.is_planted = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == ROOT / self.fault.file:
            spec.loader = _Loader(fullname, spec.origin, self.fault)
            self.is_planted = True
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, fault: Fault) -> None:
        super().__init__(fullname, path)
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        """Of the changed text, never of a cache."""
        text = self._fault.planted_in(Path(self.path).read_text(encoding="utf-8"))
        return compile(text, self.path, "exec", dont_inherit=True)


def run_planted(name: str, module: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS` with the fault NAME, and what it printed. Empty: with none."""
    planted = ["-m", "tests.planted_faults.importing", name, module] if name else ["-m", module]
    return subprocess.run(
        [sys.executable, *planted, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def main(name: str, module: str, arguments: Sequence[str]) -> None:
    """Raises SystemExit as the module does, and ImportError where nothing has imported the file."""
    planter = Planter(read_faults()[name])
    sys.meta_path.insert(0, planter)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        if not planter.is_planted:
            raise ImportError(f"{planter.fault.file} was not imported")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
