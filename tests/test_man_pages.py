from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click
import pytest
from triolog.tools.cli.main import SUBCOMMANDS

MAN_PAGES: Final = runpy.run_path(str(Path(__file__).parents[1] / "packaging/man_pages.py"))
PAGES: Final = {MAN_PAGES["page_name"](ctx): ctx for ctx in MAN_PAGES["contexts"]()}
MACROS: Final = frozenset({".TH", ".SH", ".TP", ".sp", ".nf", ".fi"})


def plain(page: str) -> str:
    """A page as a reader sees its characters."""
    text = re.sub(r"\\f[BP]", "", page).replace(r"\&", "").replace(r"\(aq", "'").replace(r"\(dq", '"')
    return text.replace(r"\-", "-").replace(r"\e", "\\")


def test_every_command_has_a_page(tmp_path: Path) -> None:
    written = {path.name for path in MAN_PAGES["write_man_pages"](tmp_path / "man1")}
    assert written == {path.name for path in (tmp_path / "man1").iterdir()}
    assert {"triolog.1", *(f"triolog-{name}.1" for name in SUBCOMMANDS)} <= written
    assert {"triolog-topics-create.1", "triolog-groups-reset.1", "triolog-spark-export.1"} <= written


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_the_help_says(name: str) -> None:
    ctx = PAGES[name]
    page = MAN_PAGES["man_page"](ctx)
    text = plain(page)
    assert f'.TH "{name.upper()}" 1 "" "triolog {version("triolog")}" "triolog manual"' in text
    assert "\b" not in page
    for param in ctx.command.get_params(ctx):
        if isinstance(param, click.Option) and not param.hidden:
            assert all(option in text for option in param.opts), param.opts
        elif isinstance(param, click.Argument):
            assert param.make_metavar(ctx) in text
    help_text = f"{ctx.command.help} {ctx.command.epilog or ''}"
    assert [word for word in help_text.split() if word != "\b" and word not in text] == []
    assert {line.split(" ")[0] for line in page.splitlines() if line.startswith((".", "'"))} <= MACROS


def test_text_is_not_taken_for_macros() -> None:
    command = click.Command("odd", help=".TH is text.\n\n'quoted' C:\\new \"x\"\n\n\b\nkept\n  as it is", epilog="end")
    lines = MAN_PAGES["man_page"](click.Context(command, info_name="odd")).splitlines()
    body = lines[lines.index(".SH DESCRIPTION") + 1 : lines.index(".SH OPTIONS")]
    quoted = r"\(aqquoted\(aq C:\enew \(dqx\(dq"
    assert body == [r"\&.TH is text.", ".sp", quoted, ".sp", ".nf", "kept", "  as it is", ".fi"]
    assert lines[-2:] == [".SH NOTES", "end"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_groff_formats_every_page_without_a_warning(tmp_path: Path) -> None:
    files = [str(path) for path in MAN_PAGES["write_man_pages"](tmp_path)]
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", *files], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "TRIOLOG-TOPICS-CREATE(1)" in done.stdout.replace("\u2010", "-")
