"""The pages of the site for users: quickstarts, cookbook, comparisons, troubleshooting.

Their programs run, their figures and log lines have a source, and every command on every page exists with its options.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from triolog import blocking
from triolog.tools.cli.main import main

from tests.clients.external_programs import ProgramUnavailableError, frameworks, unavailable
from tests.support.followed_page import Reader

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
QUICKSTARTS: Final = sorted((DOCS / "quickstart").glob("*.md"))
SCREEN: Final = 40
"""Lines of a page that fit one screen."""
RECIPE: Final = 25
"""Lines of code of a recipe, without empty ones."""
FRAMEWORKS: Final = ("Django", "FastStream", "Quix Streams")
"""Recipes that need an environment of their own."""
IN_SPARK: Final = DOCS / "quickstart" / "spark.md"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


# ---- programs ------------------------------------------------------------------------------------------------------------


@pytest.mark.merge
@pytest.mark.parametrize("path", [path for path in QUICKSTARTS if path != IN_SPARK], ids=lambda path: path.stem)
def test_a_quickstart_does_what_it_says(path: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert reader.follow(path.read_text(encoding="utf-8")) >= 1


@pytest.mark.long  # in the merge tier the README and the tutorial read topics as tables, and each program starts a JVM
@pytest.mark.timeout(900)
def test_the_quickstart_with_spark_does_what_it_says(tmp_path: Path, jvm_options: str) -> None:
    with Reader(tmp_path, jvm_options) as reader:
        assert reader.follow(IN_SPARK.read_text(encoding="utf-8")) >= 1


def test_a_quickstart_fits_one_screen() -> None:
    assert [path.stem for path in QUICKSTARTS] == ["edge", "embed", "kafka", "spark", "test"]
    assert {path.name: lines for path in QUICKSTARTS if (lines := len(path.read_text().splitlines())) > SCREEN} == {}


@pytest.mark.merge
def test_recipes_of_the_cookbook_do_what_they_say(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert reader.follow("".join(text for name, text in recipes().items() if name not in FRAMEWORKS)) == 12


@pytest.mark.merge
@pytest.mark.timeout(1_200)  # a fresh machine fetches the packages
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_recipe_for_a_framework_does_what_it_says(name: str, tmp_path: Path) -> None:
    try:
        programs = frameworks()
    except ProgramUnavailableError as exc:
        unavailable(str(exc))
    with Reader(tmp_path, programs=programs) as reader:
        assert reader.follow(recipes()[name]) == 1


def recipes() -> dict[str, str]:
    """The sections of the cookbook."""
    return {text.partition("\n")[0]: text for text in text_of("cookbook.md").split("\n## ")[1:]}


def test_recipes_are_short() -> None:
    programs = re.findall(r"^```python(?: [^\n]*)?\n(.*?)^```", text_of("cookbook.md"), re.MULTILINE | re.DOTALL)
    assert len(programs) > 9
    assert [code for code in programs if sum(bool(line.strip()) for line in code.splitlines()) > RECIPE] == []


# ---- figures -------------------------------------------------------------------------------------------------------------


def rows(page: str) -> Iterator[list[str]]:
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)", text))


def test_every_figure_is_on_the_page_of_its_run() -> None:
    found = 0
    for cells in rows(text_of("figures.md")):
        if link := re.search(r"\]\((benchmarks/[^)]+)\)", cells[-1]):
            named = numbers(" ".join(cells[1:-1]))
            assert named - numbers(text_of(link[1])) == set(), cells
            found += len(named)
    assert found > 40


SOURCES: Final = {"2026-11-25": "benchmarks/2026-11-25-kafka.md", "2026-11-20": "benchmarks/2026-11-20-neighbours.md"}
MEASURED: Final = re.compile(r"\d (?:[kMG]i?B|MB/s|/s|k/s|ms|us|s)\b")


def test_every_figure_of_a_comparison_has_a_date_and_is_on_the_page_of_that_day() -> None:
    found = 0
    for cells in rows(text_of("why-not.md")):
        for cell in cells[1:]:
            if not MEASURED.search(cell):
                continue
            dated = re.search(r"\((?:\[)?(2026-\d\d-\d\d)(?:\]\(([^)]+)\))?\)", cell)
            assert dated is not None, f"no date: {cell}"
            source = dated[2] or SOURCES[dated[1]]
            assert numbers(cell.replace(dated[0], "")) - numbers(text_of(source)) == set(), cell
            found += 1
    assert found > 25


# ---- log lines -----------------------------------------------------------------------------------------------------------


def _shapes(path: Path) -> Iterator[str]:
    """Texts of a module, with `...` for values."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-.\d]*[sdrf]", "...", node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)


@functools.cache
def shapes() -> str:
    return "\n".join(
        shape
        for folder in ("server", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "symptoms.py"  # the page is made from it
        for shape in _shapes(path)
    )


@pytest.mark.merge
@pytest.mark.parametrize("page", ["troubleshooting.md", "upgrading.md"])
def test_every_log_line_of_a_page_is_a_line_of_the_code(page: str) -> None:
    quoted = [line.strip() for _, line in re.findall(r"^(?:\| )?(`+)(.*?\.\.\..*?)\1(?: \||$)", text_of(page), re.MULTILINE)]
    assert len(quoted) >= (20 if page == "troubleshooting.md" else 1)
    assert [line for line in quoted if line not in shapes()] == []


# ---- commands ------------------------------------------------------------------------------------------------------------

PAGES: Final = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "benchmarks" not in path.parts)]
FENCED: Final = re.compile(r"^```[^\n]*\n(.*?)^```|((?:^    [^\n]*\n|^\n)+)", re.MULTILINE | re.DOTALL)
INLINE: Final = re.compile(r"(?<!`)`((?:\S+/)?triolog [^`]+)`(?!`)")
COMMAND: Final = re.compile(r"(?:^\s*(?:[$>] )?|\| ?|&& )(?:\S+/)?triolog +([^\n|;]+)", re.MULTILINE)


def commands_of(page: str) -> Iterator[str]:
    """Arguments of `triolog` in blocks and in text."""
    page = page.replace("\\\n", " ")
    for block in map("".join, FENCED.findall(page)):
        typed = [line for line in block.splitlines() if line.lstrip().startswith(("$ ", "> "))]
        yield from COMMAND.findall("\n".join(typed) if typed else block)
    for span in INLINE.findall(FENCED.sub("", page)):
        yield from COMMAND.findall(" ".join(span.split()))


def _resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and its arguments. Raises KeyError."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].isupper():
        if words[0].startswith("-"):
            (option,) = [each for each in command.params if words[0].partition("=")[0] in each.opts] or [None]
            if option is None:
                break
            has_value = isinstance(option, click.Option) and not option.is_flag and "=" not in words[0]
            words = words[2 if has_value else 1 :]
            continue
        with click.Context(command) as context:
            found = command.get_command(context, words[0])
        if found is None:
            raise KeyError(words[0])
        command, words = found, words[1:]
    return command, words


def _wrong(typed: str) -> str | None:
    try:
        words = shlex.split(typed.replace("...", ""), comments=True)
    except ValueError:
        words = typed.split()
    words = words[: next((at for at, word in enumerate(words) if word in (">", "2>", "<", "&")), len(words))]
    if not words:
        return None
    try:
        command, arguments = _resolved(words)
    except KeyError as exc:
        return f"no command {exc}"
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "--version"}
    unknown = [
        word.partition("=")[0] for word in arguments if re.match(r"--\w", word) and word.partition("=")[0] not in options
    ]
    return f"no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_exists_with_its_options(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    wrong = [(typed.strip(), reason) for typed in commands_of(page) if (reason := _wrong(typed)) is not None]
    assert wrong == []


# ---- names in programs -------------------------------------------------------------------------------------------------


def programs_of(page: str) -> Iterator[str]:
    """The Python programs of a page, fenced or indented."""
    yield from (textwrap.dedent(code) for code in re.findall(r"^ *```py(?:thon)?(?: [^\n]*)?\n(.*?)^ *```", page, re.M | re.S))
    for block in re.findall(r"(?:^(?: {4}[^\n]*)?\n)+", page, re.M):
        if re.search(r"^ {4}(?:from triolog|import triolog)\b", block, re.M):
            yield textwrap.dedent(block)


def missing_names(program: str) -> list[str]:
    """Names of triolog that a program uses and that do not exist. Raises SyntaxError."""
    tree = compile(program, "a page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    used = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            used += [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Attribute):
            used.append(ast.unparse(node))
    return [name for name in used if re.fullmatch(r"triolog(\.\w+)+", name) and not _exists(name)]


def _exists(name: str) -> bool:
    """Also true of a module that needs a package which is not installed here."""
    try:
        pkgutil.resolve_name(name)
        return True
    except (ImportError, AttributeError):
        module = name.rpartition(".")[0]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as exc:
        return not (exc.name or "triolog").startswith("triolog")
    return False


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_program_of_a_page_compiles_and_uses_names_that_exist(path: Path) -> None:
    assert [name for program in programs_of(path.read_text(encoding="utf-8")) for name in missing_names(program)] == []


def test_a_program_with_a_wrong_name_is_reported() -> None:
    page = "Text:\n\n    import triolog\n    triolog.opened()\n\n```python\nfrom triolog.blocking import opne\n```\n"
    assert sorted(name for program in programs_of(page) for name in missing_names(program)) == [
        "triolog.blocking.opne",
        "triolog.opened",
    ]


# ---- statements ----------------------------------------------------------------------------------------------------------


def test_the_faq_knows_whether_an_embedded_broker_opens_a_port() -> None:
    with blocking.open() as broker:
        answer = "No" if broker.native is broker.kafka is None else "Yes"
    assert f"**Does an embedded broker open a port?** {answer}" in text_of("faq.md")


def test_terms_of_the_glossary_are_in_order() -> None:
    terms = [cells[0].lower() for cells in rows(text_of("glossary.md"))][1:]
    assert terms == sorted(terms)
    assert len(terms) > 30


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert pages - set(re.findall(r"[\w/.-]+\.md", menu)) == set()
