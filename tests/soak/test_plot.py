"""A picture of samples, and what is read of a process for them."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from .plot import draw, rates
from .sampling import Sample, disk_bytes, memory_of, values_of

SAMPLE = Sample(
    at_s=0.0,
    life=0,
    age_s=0.0,
    rss=3 << 20,
    pss=2 << 20,
    private=1 << 20,
    descriptors=10,
    threads=4,
    children=0,
    tasks=9,
    segments=5,
    disk_bytes=7 << 20,
    records=0,
    cpu_s=0.0,
)


def run(*lives: int) -> list[Sample]:
    return [attrs.evolve(SAMPLE, at_s=5.0 * at, life=life, records=50 * at) for at, life in enumerate(lives)]


@pytest.fixture(scope="module", autouse=True)
def fonts_are_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    """matplotlib opens its fonts when it first draws text, and keeps them open."""
    draw(run(0, 0), "first", tmp_path_factory.mktemp("fonts") / "first.svg")


def test_rates_are_of_one_life_each() -> None:
    assert [rate for _, rate in rates(run(0, 0, 0, 1, 1))] == [10.0, 10.0, 10.0]


def test_the_picture_has_all_curves_and_a_line_for_each_restart(tmp_path: Path) -> None:
    draw(run(0, 0, 1, 1, 2, 2), "a title", tmp_path / "soak.svg")
    text = (tmp_path / "soak.svg").read_text()
    ElementTree.fromstring(text)
    for label in ("a title", "memory, MiB", "private", "descriptors", "tasks", "segments", "on disk, MiB", "records a second"):
        assert label in text
    draw(run(0, 0, 1, 1, 2, 2), "a title", tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == text


def test_values_of_metrics_keep_their_labels() -> None:
    text = '# HELP a b\na_total 3.0\nb{topic="t t",partition="1"} 1e+06\n'
    assert dict(values_of(text)) == {"a_total": 3.0, 'b{topic="t t",partition="1"}': 1e6}


def test_memory_of_a_process_adds_up() -> None:
    memory = memory_of(os.getpid())
    assert 0 < memory["Private_Dirty"] <= memory["Pss"] <= memory["Rss"]


def test_the_disk_of_a_folder_is_what_its_files_take_up(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 100_000 <= disk_bytes(tmp_path) < 200_000
