"""What is released: `make dist` and `make zipapp` run on a copy of this tree, and what they make works in empty environments.

The wheel is the one made from the source distribution: what either of them forgets is missing here.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.extras import how_to_install
from triolog.server.config.version import VERSION

from tests.support.counts import by_tier
from tests.support.followed_page import Reader
from tests.support.interpreters import PROJECT, THIS, VERSIONS, interpreter
from tests.support.server_process import ServerFolder, ServerProcess

merge = pytest.mark.merge  # environments are created and filled

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("protocol", "server", "tools")
LOOKED_UP_BY_SPARK: Final = ("pyspark_triolog", "pyspark_triolog_segments")
"""Installed from `tools/spark/data_sources` as top-level packages: Spark finds data sources in modules of such names only."""
NOT_IN_THE_WHEEL: Final = (
    "tools/bench/",
    "tools/demo/",
    "tools/spark/bench/",
    "tools/spark/data_sources/__init__.py",
    "tools/spark/demo/",
)
FILES: Final = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")
PATIENCE_S: Final = 60.0
RELEASED: Final = os.environ.get("TRIOLOG_TEST_RELEASED")
"""A tree with `dist` and `build`, which are tested in place of new ones: `make release-check` sets it."""
at_release = merge if RELEASED else pytest.mark.long
PYTHONS: Final = by_tier(commit=(THIS,), merge=(THIS,), long=VERSIONS) if RELEASED is None else VERSIONS
INSTALLED_FILES: Final = (
    by_tier(commit=(), merge=("*.tar.gz",), long=("*.whl", "*.tar.gz")) if RELEASED is None else ("*.whl", "*.tar.gz")
)
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")

IMPORT_EVERYTHING: Final = """
import importlib, pkgutil
import triolog
NEED_THE_ARROW_EXTRA = ("triolog.tools.spark.", "triolog.tools.arrow.", "triolog.tools.segments.",
    "triolog.tools.export.", "triolog.tools.sql.", "triolog.tools.cli.sql.", "triolog.tools.client.sending.key_hashes",
    "triolog.protocol.records.columnar.")
NEED = {"numpy": NEED_THE_ARROW_EXTRA, "pyarrow": NEED_THE_ARROW_EXTRA, "pyspark": ("triolog.tools.spark.",)}
NEED["prometheus_client"] = ("triolog.server.listeners.http.health", "triolog.server.figures.prometheus")
HTTP = tuple(f"triolog.server.listeners.http.{name}" for name in ("produce", "server", "session"))
HTTP += ("triolog.server.logs.signing_keys",)
NEED["h11"] = (*HTTP, "triolog.server.fake.", "triolog.tools.console.", *NEED["prometheus_client"])
NEED["google"] = NEED["google.protobuf"] = NEED["avro"] = ("triolog.server.registry.",)
NEED["pytest"] = ("triolog.tools.pytest_plugin",)
NEED["testcontainers"] = ("triolog.tools.testcontainers",)
COMMANDS = ("triolog.tools.cli.", "triolog.tools.pictures.", "triolog.tools.spark.")
NEED["click"] = NEED["rich"] = COMMANDS
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

CORE: Final = frozenset({"attrs", "cramjam", "crc32c", "idna", "msgpack", "outcome", "sniffio", "sortedcontainers", "trio"})
"""The packages that `pip install .` brings, six of them trio and its own. Until 2026-11-28 there were nine more."""
COMPILED: Final = frozenset({"cramjam", "crc32c", "msgpack"})
"""Those with native modules: docs/platforms.md has their wheels."""
MOST_CORE_BYTES: Final = 29_000_000
"""28.4 MB on 2026-11-29, 0.8 of them mirrors, followed files, dead-letter queues and the story of a test. Less than half is
bytecode, which uv does not write. It was 49 MB before click, rich and RE2 became extras."""
MOST_EXTRAS: Final = 12
OLD_PYTHONS: Final = ("3.6", "3.8", "3.10")

EMBEDDED: Final = """
import triolog
with triolog.blocking.open(topics=["t"]) as broker:
    broker.append("t", [b"espresso"])
    print(broker.fetch("t")[0].value)
"""


@attrs.frozen(kw_only=True)
class Released:
    tree: Path
    """The copy that was built."""
    elsewhere: Path
    """A folder from which the source tree cannot be imported by accident."""

    @property
    def wheel(self) -> Path:
        [wheel] = (self.tree / "dist").glob("*.whl")
        return wheel

    def make(self, target: str, *arguments: str) -> None:
        """With the tools of this environment, which is left as it is."""
        installed = f"{sys.prefix}/.installed-release"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        _run("make", f"VENV={sys.prefix}", "-o", installed, *arguments, target, cwd=self.tree, environment=variables)


@attrs.frozen(kw_only=True)
class Installed:
    released: Released
    bin: Path

    def run(self, program: str, *arguments: str) -> str:
        return _run(str(self.bin / program), *arguments, cwd=self.released.elsewhere)


def _run(*command: str, cwd: Path, environment: dict[str, str] | None = None, said: str | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, input=said, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def python_of(version: str) -> str:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    return found


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    folder = tmp_path_factory.mktemp("packaging")
    tree, elsewhere = folder / "tree", folder / "elsewhere"
    elsewhere.mkdir()
    if RELEASED is not None:
        return Released(tree=Path(RELEASED), elsewhere=elsewhere)
    for name in (*FOLDERS, "triolog", "tests", "docs", "packaging"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "data"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    released = Released(tree=tree, elsewhere=elsewhere)
    released.make("dist")
    return released


def install(released: Released, python: str, folder: Path, extras: str = "", file: str = "*.whl") -> Installed:
    """The wheel, or another file of `dist`, in a new environment of its own. Extras come by uv, in a tenth of pip's time."""
    _run(python, "-m", "venv", "--without-pip", str(folder), cwd=released.elsewhere)
    there, uv = ("--python", str(folder / "bin" / "python")), Path(sys.executable).with_name("uv")
    installer = (
        (str(uv), "pip", "install", *there) if extras and uv.exists() else (sys.executable, "-m", "pip", *there, "install")
    )
    [path] = (released.tree / "dist").glob(file)
    _run(*installer, "--quiet", f"{path}{extras}", cwd=released.elsewhere)
    return Installed(released=released, bin=folder / "bin")


@pytest.fixture(scope="module", params=PYTHONS)
def core(request: pytest.FixtureRequest, released: Released, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Without any extra."""
    return install(released, python_of(request.param), tmp_path_factory.mktemp("core") / request.param)


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request: pytest.FixtureRequest, released: Released, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """With the command."""
    return install(released, python_of(request.param), tmp_path_factory.mktemp("environment") / request.param, "[cli]")


def say(command: Sequence[str], folder: Path, server: ServerProcess, *arguments: str, told: str | None = None) -> str:
    """What the command line says to a server."""
    return _run(*command, *arguments, "--server", "{}:{}".format(*server.address), cwd=folder, said=told)


def use(folder: ServerFolder, command: Sequence[str]) -> None:
    """Start a server, make a topic, produce and consume, and stop, all with the same command."""
    server = folder.start()
    say(command, folder.path, server, "topics", "create", "t")
    say(command, folder.path, server, "produce", "t", told="espresso\nlatte\n")
    lines = say(command, folder.path, server, "consume", "t", "--json").splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["espresso", "latte"]
    assert server.stop() == 0, server.stderr()


def test_users_have_few_extras_and_no_dependency_has_a_bound_above_but_sparks() -> None:
    extras = PROJECT["optional-dependencies"]
    assert len(extras) <= MOST_EXTRAS
    named = [*PROJECT["dependencies"], *(each for extra in extras.values() for each in extra)]
    assert [each for each in named if "<" in each] == ["pyspark>=4.3,<4.4"]


def _is_in_the_wheel(source: Path) -> bool:
    return not source.as_posix().startswith(NOT_IN_THE_WHEEL)


def _installed_as(source: Path) -> str:
    return "/".join(source.parts[3:]) if source.parent.name in LOOKED_UP_BY_SPARK else f"triolog/{source}"


@merge
def test_the_wheel_holds_every_source_file_and_nothing_else(released: Released) -> None:
    sources = {
        _installed_as(path.relative_to(released.tree))
        for folder in FOLDERS
        for path in (released.tree / folder).rglob("*")
        if _is_in_the_wheel(path.relative_to(released.tree))
        and (
            path.suffix == ".py"
            or path.name == "py.typed"
            or path.suffix == ".properties"
            or path.parent.name == "pipeline_template"
            or (folder == "tools" and "static" in path.parts and path.is_file())
        )
    }
    names = {name for name in zipfile.ZipFile(released.wheel).namelist() if ".dist-info/" not in name}
    assert names == sources | {f"triolog/{path.name}" for path in (released.tree / "triolog").iterdir() if path.is_file()}
    assert {f"triolog/{folder}/py.typed" for folder in FOLDERS} <= names


@merge
def test_the_wheel_and_the_bill_of_materials_beside_it_say_what_it_is(released: Released) -> None:
    """`make dist` has asked twine for the rest."""
    archive = zipfile.ZipFile(released.wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    said = message_from_bytes(archive.read(name))
    assert (said["Name"], said["Version"], said["License-Expression"]) == ("triolog", VERSION, "Apache-2.0")
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_all("Classifier") == PROJECT["classifiers"]
    assert any(each.endswith("/licenses/LICENSE") for each in archive.namelist())
    bill = json.loads((released.tree / "build" / "triolog.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == VERSION


@merge
def test_the_core_is_small_and_has_a_broker(core: Installed) -> None:
    [packages] = (core.bin.parent / "lib").glob("python3.*/site-packages")
    found = {each.name.partition("-")[0] for each in packages.glob("*.dist-info")}
    assert found == CORE | {"triolog"}
    assert {each.relative_to(packages).parts[0] for each in packages.rglob("*.so")} == COMPILED
    assert sum(each.stat().st_size for each in packages.rglob("*") if each.is_file()) < MOST_CORE_BYTES
    assert core.run("python", "-I", "-c", EMBEDDED) == "b'espresso'\n"


@merge
def test_without_its_extra_the_command_says_in_one_line_how_to_get_it(core: Installed) -> None:
    for command in (("triolog",), ("triolog", "serve"), ("python", "-I", "-m", "triolog.tools.cli")):
        done = subprocess.run([core.bin / command[0], *command[1:]], capture_output=True, text=True, check=False)
        assert done.stderr == f"the triolog command needs click, rich, h11, PyYAML: {how_to_install('cli')}\n"
        assert (done.returncode, done.stdout) == (1, "")


@merge
def test_every_module_imports_with_the_runtime_dependencies_alone(core: Installed) -> None:
    modules = core.run("python", "-I", "-c", IMPORT_EVERYTHING).split()
    tree = core.released.tree
    sources = {path.relative_to(tree) for folder in FOLDERS for path in (tree / folder).rglob("*.py")}
    names = [_installed_as(path) for path in sources if _is_in_the_wheel(path)]
    expected = {name[:-3].replace("/", ".").removesuffix(".__init__") for name in names if name.startswith("triolog/")}
    left_out = (".__main__", "triolog.tools.pytest_plugin.report")  # a package that needs pytest is not walked into
    facade = {"triolog", "triolog.aio", "triolog.blocking"}
    assert set(modules) == {*facade, *(name for name in expected if not name.endswith(left_out))}


@merge
def test_the_installed_command_serves_and_a_program_has_a_broker_inside(installed: Installed, tmp_path: Path) -> None:
    assert installed.run("triolog", "--version") == f"triolog {VERSION}\n"
    assert installed.run("triolog", "--help").startswith("Usage: triolog ")
    command = (str(installed.bin / "triolog"),)
    with ServerFolder(tmp_path, command=command) as folder:
        use(folder, command)
    for name in ("bench", "edge-demo"):
        isolated = (str(installed.bin / "python"), "-I", "-m", "triolog.tools.cli", name)
        run = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True, check=False)
        where = f"Error: {name} is not in the wheel, only in triolog's repository. Run it in a clone\n"
        assert (run.returncode, run.stderr) == (1, where)


@merge
@pytest.mark.parametrize("file", INSTALLED_FILES)
def test_the_readme_works_where_nothing_but_a_released_file_is_installed(released: Released, file: str, tmp_path: Path) -> None:
    installed = install(released, python_of(THIS), tmp_path / "environment", "[cli,forward]", file)
    (tmp_path / "reader").mkdir()
    with Reader(tmp_path / "reader", installed.bin) as reader:
        assert reader.follow(README) == 7


@pytest.fixture(scope="module")
def zipapp(released: Released) -> Path:
    if RELEASED is None:
        released.make("zipapp", "-o", "dist")
    return released.tree / "build" / "triolog.pyz"


def alone(zipapp: Path, version: str, folder: Path) -> tuple[str, ...]:
    """The command that a copy of the file is in an empty folder, without a variable and without what is installed."""
    copy = shutil.copy(zipapp, folder)
    return ("env", "-i", f"SHIV_ROOT={folder / 'unpacked'}", python_of(version), "-I", "-S", str(copy))


@merge
@pytest.mark.parametrize("version", PYTHONS)
def test_the_zipapp_serves_where_there_is_nothing_but_python(zipapp: Path, version: str, tmp_path: Path) -> None:
    command = alone(zipapp, version, tmp_path)
    with ServerFolder(tmp_path, command=command) as folder:
        use(folder, command)


@at_release  # the recipes of other languages start it in the merge tier
def test_the_commands_of_the_readme_work_with_the_zipapp(zipapp: Path, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "triolog"
    command.parent.mkdir()
    _, _, *program = alone(zipapp, THIS, tmp_path)
    server = "${TRIOLOG_SERVER:+TRIOLOG_SERVER=$TRIOLOG_SERVER}"
    command.write_text(f'#!/bin/sh\nexec env -i {server} {shlex.join(program)} "$@"\n')
    command.chmod(0o755)
    (tmp_path / "reader").mkdir()
    with Reader(tmp_path / "reader", command.parent) as reader:
        assert reader.follow(README.partition("## Run it")[2].partition("## ")[0]) == 4


@merge
def test_another_python_and_another_machine_get_one_line_of_the_zipapp(zipapp: Path, tmp_path: Path) -> None:
    main = zipfile.ZipFile(zipapp).read("__main__.py").decode()
    ast.parse(main, feature_version=(3, 7))
    other = zipfile.ZipFile(tmp_path / "other.pyz", "w")
    with other:
        other.writestr("__main__.py", main.replace(f"'{THIS}'", "'3.0'"))
    *others, last = VERSIONS
    listed = f"triolog.pyz runs on Python {', '.join(others)} and {last}, and this is Python"
    programs = [(sys.executable, tmp_path / "other.pyz", THIS)]
    programs += [(found, zipapp, old) for old in OLD_PYTHONS if (found := interpreter(old)) is not None]
    for python, file, version in programs:
        done = subprocess.run([python, str(file), "serve"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"{listed} {version}. Start it with one of those\n"
    with zipfile.ZipFile(tmp_path / "foreign.pyz", "w") as foreign:
        foreign.writestr("__main__.py", main.replace(repr(os.uname().machine), "'riscv64'"))
    done = subprocess.run([sys.executable, "foreign.pyz"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Build it on a machine like this one: make zipapp" in done.stderr


@merge
def test_processes_that_a_server_starts_find_their_modules_in_the_zipapp(zipapp: Path, tmp_path: Path) -> None:
    """The one that compacts, and the one that scrubs."""
    config = tmp_path / "scrub.toml"
    config.write_text("scrub_bytes_per_second = 1000000\nscrub_interval_ms = 1\n")
    with ServerFolder(tmp_path, command=alone(zipapp, THIS, tmp_path)) as folder:
        server = folder.start("--control", "127.0.0.1:0")
        topic = {"name": "t", "config": {"cleanup.policy": "compact", "segment.bytes": "1024"}}
        control(server, "POST", "/topics", topic)
        for value in ("old" * 300, "new" * 300, "newest" * 150):
            control(server, "POST", "/topics/t/records", {"records": [{"key": "k", "value": value}]})
        assert control(server, "POST", "/topics/t/compact", {}) == {"rounds": 1}
        assert [each["offset"] for each in control(server, "GET", "/topics/t/records")] == [2]
        control(server, "POST", "/topics", {"name": "s", "config": {"segment.bytes": "1024"}})
        for _ in range(2):
            control(server, "POST", "/topics/s/records", {"records": ["v" * 900]})
        assert server.stop() == 0, server.stderr()
        with (folder.data_dir / "s-0" / "00000000000000000000.log").open("r+b") as segment:
            segment.seek(500)
            segment.write(b"damage")
        folder.start("--config", str(config)).wait_stderr("are damaged")


def control(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    host, _, port = json.loads(server.ready_file.read_text())["control"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
    finally:
        connection.close()
    assert answer.status == 200, told
    return told
