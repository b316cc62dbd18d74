"""Reads the imports of a source tree and judges them by floors. Nothing is imported, everything is parsed.

Every import statement counts: at the top of a module, inside a function, under TYPE_CHECKING.
Modules are named from the root folders on: `server.storage.log.log`. Names outside the tree keep their own: `trio`.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import attrs

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
