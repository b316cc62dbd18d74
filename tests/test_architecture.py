"""The rules of the house that a machine can check: floors, doors, packages, names, what is tracked."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import pytest

DISTRIBUTION = "triolog"


@attrs.frozen(kw_only=True)
class Import:
    importer: str
    imported: str
    """A module of the tree where there is one of that name, else the dotted name as written."""
    place: str
    absolute: bool


@attrs.frozen(kw_only=True)
class Tree:
    modules: Mapping[str, Path]
    imports: tuple[Import, ...]


def read_tree(root: Path, folders: Iterable[str]) -> Tree:
    modules = {
        _module_name(path.relative_to(root)): path for folder in folders for path in sorted((root / folder).rglob("*.py"))
    }
    imports = tuple(found for module in modules for found in _imports_of(module, modules, root))
    return Tree(modules=modules, imports=imports)


def lies_in(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def unit_of(module: str, floors: Mapping[str, int]) -> str | None:
    """The entry of the table that a module belongs to: the longest prefix of its name."""
    return max((prefix for prefix in floors if lies_in(module, prefix)), key=len, default=None)


def floor_violations(tree: Tree, floors: Mapping[str, int], *, facades: Collection[str]) -> Iterator[str]:
    """Imports that do not go strictly down. Modules of one entry may import each other; two entries never on a floor.

    Facades have no floor: they hold a docstring, so importing one gives nothing and they import nothing.
    """
    for module in sorted(tree.modules):
        if module not in facades and unit_of(module, floors) is None:
            yield f"{module}: has no floor in the table"
    for found in tree.imports:
        importer, imported = unit_of(found.importer, floors), unit_of(found.imported, floors)
        if found.imported not in tree.modules or importer is None or importer == imported:
            continue
        if imported is None:
            yield f"{found.place}: imports {found.imported}, which has no floor"
        elif floors[imported] >= floors[importer]:
            yield (
                f"{found.place}: {found.importer} (floor {floors[importer]}) imports "
                f"{found.imported} (floor {floors[imported]})"
            )


def forbidden_imports(tree: Tree, forbidden: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Imports of what a part of the tree never sees, named by prefix; inside the tree or outside."""
    for found in tree.imports:
        for part, names in forbidden.items():
            if lies_in(found.importer, part) and any(lies_in(found.imported, name) for name in names):
                yield f"{found.place}: {part} never imports {found.imported}"


def imports_past_the_door(tree: Tree, doors: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Imports inside the tree by a part that may see only itself and the named prefixes."""
    for found in tree.imports:
        for part, allowed in doors.items():
            inside = lies_in(found.importer, part) and found.imported in tree.modules
            if inside and not any(lies_in(found.imported, name) for name in (part, *allowed)):
                yield f"{found.place}: {part} imports {found.imported}, it may see only {', '.join(sorted(allowed))}"


def absolute_imports(tree: Tree, folders: Collection[str]) -> Iterator[str]:
    """Imports of the tree's own modules that name the distribution or a root folder instead of being relative."""
    roots = {DISTRIBUTION, *folders}
    for found in tree.imports:
        if found.absolute and found.imported.partition(".")[0] in roots:
            yield f"{found.place}: imports {found.imported} by its absolute name"


def first_cycle(tree: Tree) -> list[str]:
    """The modules of one cycle, the first one repeated at the end; [] when there is none."""
    graph: dict[str, set[str]] = {module: set() for module in tree.modules}
    for found in tree.imports:
        if found.imported in tree.modules:
            graph[found.importer].add(found.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(module: str, modules: Mapping[str, Path], root: Path) -> Iterator[Import]:
    path = modules[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            names = [(alias.name, True) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(name, node.level == 0) for name in _names_from(node, package, modules)]
        else:
            continue
        place = f"{path.relative_to(root)}:{node.lineno}"
        for name, absolute in names:
            yield Import(importer=module, imported=name, place=place, absolute=absolute)


def _names_from(node: ast.ImportFrom, package: list[str], modules: Mapping[str, Path]) -> Iterator[str]:
    """`from X import a`: X.a where that is a module, else X. A relative X is resolved; above the root it is dots."""
    climbed = node.level - 1
    if node.level == 0:
        base: list[str] = []
    elif climbed <= len(package):
        base = package[: len(package) - climbed]
    else:
        base = ["." * node.level]
    origin = ".".join([*base, *([node.module] if node.module else [])])
    for alias in node.names:
        full = f"{origin}.{alias.name}" if origin else alias.name
        yield full if full in modules else origin or full


ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("protocol", "server", "tools")
FACADES: Final = (*FOLDERS, "server.storage")
"""Packages that hold a docstring and packages."""

FLOORS: Final = {
    "protocol.former": -1,
    "protocol.errors": 0,
    "protocol.extras": 0,
    "protocol.platforms": 0,
    "protocol.types": 0,
    "protocol.limits": 0,
    "protocol.following": 1,
    "protocol.patterns": 1,
    "protocol.receive_buffer": 1,
    "protocol.records": 1,
    "protocol.schema": 1,
    "protocol.coordinator": 2,
    "protocol.kafka": 2,
    "protocol.native": 2,
    "server.loop": 3,
    "server.system": 3,
    "server.fake.faults": 3,
    "server.config": 4,
    "server.access": 5,
    "server.groups": 5,
    "server.sharing.state": 5,
    "server.telemetry": 5,
    "server.storage.child_process": 4,
    "server.storage.errors": 4,
    "server.storage.disk": 5,
    "server.storage.indexes": 6,
    "server.storage.segments": 7,
    "server.storage.producers": 8,
    "server.storage.log": 9,
    "server.storage.cleaner": 10,
    "server.storage.lookups": 10,
    "server.storage.recovery": 11,
    "server.storage.directory": 12,
    "server.offline": 14,
    "server.partitions": 16,
    "server.logs": 17,
    "server.offsets": 18,
    "server.transactions": 18,
    "server.stages": 19,
    "server.groups.coordinators": 19,
    "server.sharing": 19,
    "server.broker": 20,
    "server.listeners.connections": 21,
    "server.figures": 22,
    "server.listeners": 23,
    "server.fake.kafka": 24,
    "server.registry": 24,
    "server.service": 24,
    "server.fake": 25,
    "server.app": 26,
    "server.embedded": 27,
    "tools.client": 25,
    "tools.schemas": 25,
    "tools.segments": 25,
    "tools.statistics": 25,
    "tools.testcontainers": 25,
    "tools.arrow": 26,
    "tools.export": 26,
    "tools.forward": 26,
    "tools.groups": 26,
    "tools.ingest": 27,
    "tools.mirror": 27,
    "tools.sql": 27,
    "tools.console": 27,
    "tools.cli.terminal": 27,
    "tools.pictures": 28,
    "tools.cli": 29,
    "tools.demo": 29,
    "tools.bench": 30,
    "tools.pytest_plugin": 30,
    "tools.demo.edge": 31,
    "tools.spark": 31,
}
"""A module imports strictly lower floors, and modules of its own entry."""

THREADS: Final = ("trio", "threading", "_thread", "concurrent", "multiprocessing", "asyncio", "queue")
SOCKETS: Final = ("socket", "ssl", "select", "selectors")
GROUP_ROOMS: Final = ("values", "timers", "classic", "assigned", "consumer", "share", "streams")
"""Where groups are decided; `server.groups.coordinators` waits, and stores."""
NEVER: Final = {
    "protocol": (*THREADS, *SOCKETS, "time", "datetime", "os", "pathlib"),
    "server.storage": (*THREADS, *SOCKETS, "protocol.native", "msgpack"),
    "server.offline": (*THREADS, *SOCKETS, "protocol.native", "msgpack"),
    "server.fake.faults": ("trio", *SOCKETS, "protocol.native", "protocol.kafka", "msgpack", "time", "datetime", "pathlib"),
    "server.access": (*THREADS, *SOCKETS, "protocol.native", "protocol.kafka.messages", "msgpack", "time", "os", "pathlib"),
    "server.telemetry": (
        *THREADS,
        *SOCKETS,
        "protocol.native",
        "protocol.kafka",
        "msgpack",
        "time",
        "datetime",
        "os",
        "pathlib",
    ),
    **dict.fromkeys(
        (*(f"server.groups.{room}" for room in GROUP_ROOMS), "server.sharing.state"),
        (*THREADS, *SOCKETS, "protocol.native", "protocol.kafka", "msgpack", "time", "datetime", "os", "pathlib"),
    ),
}
"""The cores know neither threads nor sockets; the protocol and the groups neither clock nor files, log and groups no wire
messages."""

DOORS: Final = {
    "server.listeners": (
        *(
            "protocol",
            "server.broker",
            "server.config",
            "server.figures",
            "server.loop",
            "server.system",
        ),
    ),
    "server.registry": (*("protocol", "server.broker", "server.config", "server.listeners", "server.system.client_memory"),),
    "tools.client": ("protocol",),
}
"""Who may see only these: a listener and the registry reach the log through the broker, a client knows no server."""

LOOKED_UP_BY_SPARK: Final = {
    "tools.spark.data_sources.pyspark_triolog": "pyspark_triolog",
    "tools.spark.data_sources.pyspark_triolog_segments": "pyspark_triolog_segments",
}
"""Folder -> the name it is installed by. Spark finds data sources in top-level modules named `pyspark_*` and nowhere else, so
these two are installed beside the distribution's own package, and can name what they import only absolutely."""

NATIVE_LISTENER: Final = ROOT / "server/listeners/native"
KAFKA_LISTENER: Final = ROOT / "server/listeners/kafka"
JUDGES: Final = frozenset(
    {"check_authorized", "authorize", "may_on_any", "may_create_topic", "may_delete_topic", "may_have_producer_id"}
)
JUDGES_BY_THEMSELVES: Final = frozenset(
    {
        *("door", "guard", "seen_answers"),
        *("produce", "fetch", "metadata", "transactions", "security", "share_fetch", "streams_groups"),
    }
)
"""Who may ask what a Kafka client may do: the one table of all APIs, and those whose answer hangs on it."""

CATCH_ALL_NAMES: Final = frozenset({"utils", "util", "common", "helpers", "helper", "misc"})
DOWNLOAD_ADDRESS: Final = re.compile(r"https?://\S+\.(?:whl|tar\.gz|tgz|jar)\b")
CONFLICT: Final = re.compile(r"(?:<{7}|\|{7}|>{7}) ")
"""A line that a merge leaves."""
MACHINE_PATH: Final = re.compile(r"(?<![\w.~}$])/(?:home|Users|root|work|workspace)/")


@functools.cache
def _tree() -> Tree:
    return read_tree(ROOT, FOLDERS)


def _plant(root: Path, **modules: str) -> Tree:
    """A tree of the named modules (`server__storage__log`), with an empty file for every package above them."""
    for name, source in modules.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        for folder in [path.parent, *path.parent.parents]:
            if folder == root:
                break
            (folder / "__init__.py").touch()
    return read_tree(root, FOLDERS)


RULES: Final[dict[str, Callable[[Tree], Iterable[str]]]] = {
    "every import goes to a lower floor": lambda tree: floor_violations(tree, FLOORS, facades=FACADES),
    "no part imports what it must never see": lambda tree: forbidden_imports(tree, NEVER),
    "listeners and clients see only their doors": lambda tree: imports_past_the_door(tree, DOORS),
    "imports have no cycles": first_cycle,
    "packages import each other relatively": lambda tree: absolute_imports(
        attrs.evolve(tree, imports=tuple(found for found in tree.imports if found.importer not in LOOKED_UP_BY_SPARK)), FOLDERS
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps_to_the_rule(rule: str) -> None:
    assert list(RULES[rule](_tree())) == []


PARTITIONS: Final = "server/partitions.py:1: server.partitions (floor 16) imports server.offsets"
ABOVE: Final = "server.storage.log (floor 9) imports server.broker.door (floor 20)"
DOOR: Final = "class Door: ..."


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"server__storage__log": "from ..broker import door", "server__broker__door": DOOR}, [ABOVE]),
        ({"server__storage__log": "from ..broker.door import Door", "server__broker__door": DOOR}, [ABOVE]),
        ({"server__storage__log": "def late():\n    from ..broker import door", "server__broker__door": DOOR}, [ABOVE]),
        (
            {
                "server__storage__log": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..broker import door",
                "server__broker__door": DOOR,
            },
            [ABOVE],
        ),
        (
            {
                "server__partitions": "from .offsets import producer_ids",
                "server__offsets__producer_ids": "",
            },
            [f"{PARTITIONS}.producer_ids (floor 18)"],
        ),
        (
            {
                "protocol__errors": "",
                "server__storage__log__log": "import os\nfrom ....protocol import errors\nfrom .gaps import name",
                "server__storage__log__gaps": "name = ''",
            },
            [],
        ),
        ({"server__elsewhere": ""}, ["server.elsewhere: has no floor in the table"]),
        (
            {"server__storage__log": "import trio.lowlevel"},
            ["server/storage/log.py:1: server.storage never imports trio.lowlevel"],
        ),
        (
            {"server__listeners__native": "from ..storage import log", "server__storage__log": ""},
            ["server/listeners/native.py:1: server.listeners imports server.storage.log"],
        ),
        (
            {
                "server__storage__log__log": "from . import append",
                "server__storage__log__append": "def late():\n    from .log import Log",
            },
            ["server.storage.log.append", "server.storage.log.log"],
        ),
        ({"server__config": "import triolog.protocol.errors"}, ["server/config.py:1: imports "]),
        ({"server__config": "from triolog.protocol import errors"}, ["server/config.py:1: imports "]),
        ({"server__config": "import server"}, ["imports server by its absolute name", "imports server, which has no floor"]),
    ],
)
def test_what_is_planted_is_reported_and_nothing_else(tmp_path: Path, modules: dict[str, str], said: list[str]) -> None:
    tree = _plant(tmp_path, **modules)
    found = sorted({line for rule in RULES.values() for line in rule(tree)})
    assert [line for line, part in zip(found, said, strict=True) if part not in line] == []


def _judging(folder: Path) -> list[str]:
    """Where a module asks what a client may do, and the table does it already."""
    return [
        f"{path.name}:{node.lineno}: {node.attr}"
        for path in sorted(folder.rglob("*.py"))
        if path.stem not in JUDGES_BY_THEMSELVES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in JUDGES
    ]


def test_what_a_client_may_do_is_asked_in_one_place() -> None:
    assert _judging(NATIVE_LISTENER) + _judging(KAFKA_LISTENER) == []
    assert {path.stem for path in KAFKA_LISTENER.rglob("*.py")} >= JUDGES_BY_THEMSELVES


def test_a_handler_that_asks_by_itself_is_reported(tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text("def join_group(call):\n    call.check_authorized(1, 2)\n")
    (tmp_path / "fetch.py").write_text("def fetch(call):\n    call.authorize(1, 2)\n")
    assert _judging(tmp_path) == ["groups.py:2: check_authorized"]


def test_tests_import_the_packages_by_their_installed_names() -> None:
    """`import server` would load a second copy of every module beside `triolog.server`."""
    paths = {_module_name(path.relative_to(ROOT)): path for path in (ROOT / "tests").rglob("*.py")}
    named = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(FOLDERS)})\b", re.MULTILINE)
    read = (module for module, path in paths.items() if named.search(path.read_text()))
    found = [each for module in read for each in _imports_of(module, paths, ROOT)]
    assert [each.place for each in found if each.imported.partition(".")[0] in FOLDERS] == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_what_is_no_value_does_not_tell_all_that_it_holds() -> None:
    """An embedded broker compiled 147 such reprs while it was imported: 22 of 291 ms, and 0.9 MiB."""
    said = re.compile(r"attrs\.(?:define|frozen)\(eq=False(?!, repr=False)")
    assert [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if said.search(path.read_text())] == []


def test_no_module_is_a_catch_all() -> None:
    modules = [path.relative_to(ROOT) for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py")]
    assert [module for module in modules if CATCH_ALL_NAMES & set(module.with_suffix("").parts)] == []


@pytest.mark.parametrize("folder", FACADES)
def test_root_packages_hold_a_docstring_only(folder: str) -> None:
    module = ast.parse((ROOT / folder.replace(".", "/") / "__init__.py").read_text())
    assert ast.get_docstring(module)
    assert len(module.body) == 1


def _git(*arguments: str) -> list[str]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    output = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout
    return [name for name in output.split("\0") if name]


def test_no_tracked_file_names_a_download_or_a_place_on_one_machine_or_has_an_unresolved_conflict() -> None:
    found: list[str] = []
    for name in _git("ls-files", "-z"):
        path = ROOT / name
        if name.startswith("tests/data/") or path.suffix == ".webp" or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if DOWNLOAD_ADDRESS.search(line) or MACHINE_PATH.search(line) or CONFLICT.match(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []


def test_a_place_on_one_machine_and_a_download_are_recognised() -> None:
    for line in ("source = '/home" + "/someone/data'", "cd /work" + "/main"):
        assert MACHINE_PATH.search(line), line
    for line in ("path = $HOME/root/data", "a log at /var/lib/triolog"):
        assert not MACHINE_PATH.search(line), line
    assert DOWNLOAD_ADDRESS.search("https://example.org/packages" + "/triolog-0.1.0.tar.gz")
    assert not DOWNLOAD_ADDRESS.search("https://kafka.apache.org/documentation/")


def test_every_log_in_the_test_data_is_tracked() -> None:
    tracked = [name for name in _git("ls-files", "-z", "--", "tests/data") if name.endswith(".log")]
    untracked = [name for name in _git("ls-files", "-z", "--others", "--", "tests/data") if name.endswith(".log")]
    assert tracked
    assert untracked == []
