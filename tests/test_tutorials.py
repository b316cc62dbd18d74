"""The tutorials say what happens: each is followed from its first line to its last."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.followed_page import Reader, is_seen

pytestmark = pytest.mark.merge  # what a tutorial says is typed into real servers

TUTORIALS: Final = Path(__file__).resolve().parent.parent / "docs" / "tutorials"
IN_SPARK: Final = "spark.md"


def follow(path: Path, reader: Reader) -> None:
    with reader:
        assert reader.follow(path.read_text(encoding="utf-8")) >= 3


@pytest.mark.parametrize("name", sorted({path.name for path in TUTORIALS.glob("*.md")} - {IN_SPARK}))
def test_what_a_tutorial_says_happens(name: str, tmp_path: Path) -> None:
    follow(TUTORIALS / name, Reader(tmp_path))


@pytest.mark.timeout(1200)
def test_what_the_tutorial_of_spark_says_happens(tmp_path: Path, jvm_options: str) -> None:
    follow(TUTORIALS / IN_SPARK, Reader(tmp_path, jvm_options))


def test_a_page_that_says_something_else_and_a_program_that_fails_are_found_out(tmp_path: Path) -> None:
    page = '```python title="one.py"\nprint(1)\n```\n\n```console\n$ python one.py\n{}\n```\n'
    with Reader(tmp_path) as reader:
        assert reader.follow(page.format("1")) == 1
        with pytest.raises(AssertionError, match=r"python one\.py\nprints\n1\n"):
            reader.follow(page.format("2"))
        with pytest.raises(AssertionError, match="line 1 ends with 1:\nno"):
            reader.follow("```python\nraise SystemExit('no')\n```\n")


def test_a_server_of_a_page_is_reached_under_the_address_that_the_page_says(tmp_path: Path) -> None:
    page = "\n".join(
        [
            "```console\n$ triolog serve --data-dir data\n```",
            '```python title="ask.py"',
            "from triolog.tools.client.blocking import BlockingAdmin, BlockingClient",
            "host, _, port = '127.0.0.1:9095'.partition(':')",
            "with BlockingClient((host, int(port))) as client:",
            "    print(BlockingAdmin(client).list_topics())",
            "```",
            "```console\n$ python ask.py\n[]\n^C\n$ triolog topics list\n...Is `triolog serve` running there?...\n```\n",
        ]
    )
    with Reader(tmp_path) as reader:
        assert reader.follow(page) == 4


@pytest.mark.parametrize(
    ("wanted", "printed", "seen"),
    [
        ("a\nb", "a  \nb\n\n", True),
        ("a ... s", "a 0.3 s", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...", "a\nb\nc", True),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
        ("", "unexpected", False),
    ],
)
def test_three_dots_stand_for_anything_and_nothing_else_does(wanted: str, printed: str, seen: bool) -> None:
    assert is_seen(wanted, printed) is seen
