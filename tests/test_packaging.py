"""What `python -m build` makes of this tree installs into an empty environment and runs there.

The tree is copied first, so that the build leaves nothing in it. The wheel is the one made from the source
distribution: what either of them forgets is missing here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Final

import attrs
import pytest

pytestmark = pytest.mark.full  # an environment is made and filled

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("protocol", "server", "tools")
LOOKED_UP_BY_SPARK: Final = ("pyspark_triolog", "pyspark_triolog_segments")
"""Installed from `tools/spark` as top-level packages: Spark finds data sources in modules of such names only."""
FILES: Final = ("pyproject.toml", "README.md", "LICENSE")

IMPORT_EVERYTHING: Final = """
import importlib, pkgutil
import triolog
NEED_THE_SPARK_EXTRA = ("triolog.tools.spark.", "triolog.protocol.records.columnar.")
NEED = {"numpy": NEED_THE_SPARK_EXTRA, "pyarrow": NEED_THE_SPARK_EXTRA, "pyspark": NEED_THE_SPARK_EXTRA}
NEED["prometheus_client"] = ("triolog.server.listeners.metrics", "triolog.server.listeners.health")
NEED["h11"] = ("triolog.server.listeners.http", "triolog.server.control.", *NEED["prometheus_client"])
NEED["pytest"] = ("triolog.tools.pytest_plugin",)
print("triolog")
for module in pkgutil.walk_packages(triolog.__path__, "triolog."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as exc:
            if exc.name not in NEED or not module.name.startswith(NEED[exc.name]):
                raise
        print(module.name)
"""
"""Only what is made for an extra may fail to import without it, and only for want of what the extra brings."""


@attrs.frozen(kw_only=True)
class Installed:
    tree: Path
    """The copy that was built."""
    wheel: Path
    bin: Path
    elsewhere: Path
    """A folder from which the source tree cannot be imported by accident."""

    def run(self, program: str, *arguments: str) -> str:
        return _run(str(self.bin / program), *arguments, cwd=self.elsewhere)


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("packaging")
    tree, environment, elsewhere = folder / "tree", folder / "environment", folder / "elsewhere"
    elsewhere.mkdir()
    for name in (*FOLDERS, "tests", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    _run(sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(tree), cwd=elsewhere)
    [wheel] = (folder / "dist").glob("*.whl")
    venv.create(environment, with_pip=False, symlinks=True)
    python = str(environment / "bin" / "python")
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", str(wheel), cwd=elsewhere)
    return Installed(tree=tree, wheel=wheel, bin=environment / "bin", elsewhere=elsewhere)


def _installed_as(source: Path) -> str:
    return "/".join(source.parts[2:]) if source.parent.name in LOOKED_UP_BY_SPARK else f"triolog/{source}"


def test_the_wheel_holds_every_source_file_and_nothing_else(installed: Installed) -> None:
    sources = {
        _installed_as(path.relative_to(installed.tree))
        for folder in FOLDERS
        for path in (installed.tree / folder).rglob("*")
        if path.suffix == ".py"
        or path.name == "py.typed"
        or path.parent.parent.name == "peers"
        or path.parent.name == "pipeline_template"
    }
    names = {name for name in zipfile.ZipFile(installed.wheel).namelist() if ".dist-info/" not in name}
    assert names == sources
    assert {f"triolog/{folder}/py.typed" for folder in FOLDERS} <= names


def test_every_module_imports_with_the_runtime_dependencies_alone(installed: Installed) -> None:
    modules = installed.run("python", "-I", "-c", IMPORT_EVERYTHING).split()
    sources = {path.relative_to(installed.tree) for folder in FOLDERS for path in (installed.tree / folder).rglob("*.py")}
    names = [_installed_as(path) for path in sources]
    expected = {name[:-3].replace("/", ".").removesuffix(".__init__") for name in names if name.startswith("triolog/")}
    left_out = (".__main__", "triolog.tools.pytest_plugin.report")  # a package that needs pytest is not walked into
    assert set(modules) == {"triolog", *(name for name in expected if not name.endswith(left_out))}


def test_the_command_says_its_version_and_its_help(installed: Installed) -> None:
    assert installed.run("triolog", "--version") == "triolog 0.1.0\n"
    assert installed.run("triolog", "--help").startswith("Usage: triolog ")
