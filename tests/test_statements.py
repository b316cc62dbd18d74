"""Statements of several pages that were false once. Each kind is compared with the code, so that it stays true."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from packaging.requirements import Requirement
from triolog.protocol.extras import IN_A_CLONE, INSTALL, IS_ON_PYPI, how_to_install
from triolog.server.embedded.options import OpenOptions
from triolog.tools.cli.main import main

ROOT: Final = Path(__file__).resolve().parent.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: Final = PROJECT["project"]["optional-dependencies"]
PAGES: Final = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SOURCES: Final = [path for folder in ("protocol", "server", "tools", "tests") for path in (ROOT / folder).rglob("*.py")]
SHARE_CONSUMER: Final = "2.15"
"""The version of confluent-kafka that brought `ShareConsumer`."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---- what to install -----------------------------------------------------------------------------------------------------


def test_no_page_and_no_error_installs_a_package_that_is_not_on_pypi() -> None:
    """Nor from a clone, once it is. `make install-lines` changes the pages after the constant has changed."""
    wrong = re.compile(r"pip install '\.\[" if IS_ON_PYPI else r"pip install (?:--\S+ )*['\"]?triolog\b")
    assert not wrong.search(INSTALL)
    both = ("CHANGELOG.md", "extras.py", "test_release.py", Path(__file__).name)
    places = [path for path in (*PAGES, *SOURCES) if path.name not in both]
    assert [named(path) for path in places if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_only_one_place_of_the_code_has_the_command_that_installs_an_extra() -> None:
    assert how_to_install("arrow") == ("pip install 'triolog[arrow]'" if IS_ON_PYPI else IN_A_CLONE.format("arrow"))
    code = [path for path in SOURCES if path.is_relative_to(ROOT / "server") or path.is_relative_to(ROOT / "tools")]
    assert [named(path) for path in code if re.search(r"pip install '(?:\.|triolog)\[", path.read_text(encoding="utf-8"))] == []


def test_every_extra_that_is_named_exists() -> None:
    found = {
        (named(path), extra)
        for path in (*PAGES, *SOURCES)
        for group in re.findall(
            r"how_to_install\(['\"]([\w,-]+)|pip install '(?:\.|triolog)\[([\w,-]+)\]'", path.read_text(encoding="utf-8")
        )
        for extra in "".join(group).split(",")
    }
    assert len(found) > 10
    assert [each for each in found if each[1] not in EXTRAS] == []


def test_the_table_of_extras_has_every_extra_of_users() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8") + (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert [extra for extra in EXTRAS if f"`{extra}`" not in page] == []


def test_a_page_with_a_share_consumer_names_the_version_that_has_it() -> None:
    """The extra `forward` accepts older ones."""
    needed = next(found for each in EXTRAS["forward"] if (found := Requirement(each)).name == "confluent-kafka")
    assert needed.specifier.contains("2.14")
    shown = [path for path in PAGES if "import ShareConsumer" in (text := path.read_text()) or ", ShareConsumer" in text]
    assert shown
    assert [named(path) for path in shown if f"confluent-kafka {SHARE_CONSUMER}" not in path.read_text()] == []


# ---- the command line ----------------------------------------------------------------------------------------------------


def _commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    with click.Context(command) as context:
        for each in command.list_commands(context):
            if (found := command.get_command(context, each)) and not found.hidden:
                yield from _commands(found, f"{name} {each}".strip())


def test_the_page_names_the_commands_without_json() -> None:
    without = [f"`{name}`" for name, each in _commands(main) if not any("--json" in option.opts for option in each.params)]
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"Commands without it: {', '.join(sorted(without))}." in page


# ---- the plug-in, tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["reference/pytest-plugin.md", "testing-with-triolog.md"])
def test_pages_agree_that_the_marker_takes_every_option_of_a_broker(page: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
    said = text.partition("takes every option of ")[2].partition(". ")[0]
    given = set(re.findall(r"`(\w+)`", said)) - {"open", "path", "triolog_broker"}
    assert said
    assert given <= OpenOptions.__annotations__.keys()


def test_the_page_on_tests_has_the_time_after_which_a_session_ends() -> None:
    minutes = PROJECT["tool"]["pytest"]["ini_options"]["session_timeout"] // 60
    page = " ".join((ROOT / "docs" / "testing.md").read_text(encoding="utf-8").split())
    assert f"After {minutes} minutes the session ends" in page
    others = [
        named(path) for path in PAGES if re.search(r"[Aa]fter an hour the session ends", path.read_text(encoding="utf-8"))
    ]
    assert others == []


def test_no_test_uses_mock_objects() -> None:
    """As the pages on tests say. `patch` sets a value for a while, as `monkeypatch` does."""
    imported = re.compile(
        r"^(?:from unittest import mock|import unittest\.mock|from unittest\.mock import (?!patch$))", re.MULTILINE
    )
    tests = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]
    assert [named(path) for path in tests if imported.search(path.read_text(encoding="utf-8"))] == []
    claims = [
        named(path) for path in PAGES if re.search(r"[Nn]othing of ours is mocked|mocks? nothing of ours", path.read_text())
    ]
    assert claims == []
