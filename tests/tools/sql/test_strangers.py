"""Questions about topics that strangers write to, on a machine that others use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from triolog.server.embedded import BlockingBroker
from triolog.tools.arrow.report import ArrowError
from triolog.tools.arrow.values.json_values import infer_json, is_deeper
from triolog.tools.arrow.values.object_values import infer_msgpack
from triolog.tools.cli.sql.formats import _unique
from triolog.tools.sql.options import SqlError, SqlOptions
from triolog.tools.sql.session import ask
from triolog.tools.sql.topic import _names

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker() as running:
        yield running


def rows(broker: BlockingBroker, sql: str, options: SqlOptions | None = None) -> list[dict[str, Any]]:
    with ask(broker, sql, options or SqlOptions(values={None: "json"}, errors="null")) as answer:
        return [row for batch in answer.batches() for row in batch.to_pylist()]


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize("depth", [500, 3_000, 20_000, 100_000])
def test_a_value_of_any_depth_does_not_end_the_process(broker: BlockingBroker, depth: int) -> None:
    broker.create_topic("t")
    objects = b'{"a":' * depth + b"1" + b"}" * depth
    broker.append("t", [b'{"a":1}', nested(depth), objects])
    assert [row["a"] for row in rows(broker, "select a from t")] == [1, None, None]
    broker.create_topic("deep")
    broker.append("deep", [nested(depth), objects])
    with pytest.raises(ArrowError, match="nest deeper than 128 levels"):
        rows(broker, "select a from deep")


def test_depth_does_not_count_what_is_in_strings() -> None:
    for value in (b'{"a":"' + b"[" * 500 + b'"}', b'{"a":"\\\\\\"' + b"{" * 500 + b'"}', b"[" + b"[]," * 500 + b"[]]"):
        assert not is_deeper(value, 128)
    assert is_deeper(b'["]",' * 200 + b"1" + b"]" * 200, 128)
    assert [is_deeper(nested(depth), 128) for depth in (127, 128)] == [False, True]


def test_types_are_inferred_up_to_a_depth() -> None:
    assert infer_json(pa.array([nested(100), nested(1_000)])).names == ["a"]
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="no map"):
        infer_msgpack(pa.array([msgpack.packb(deep)]))
    assert infer_msgpack(pa.array([msgpack.packb(deep), msgpack.packb({"b": 1})])).names == ["b"]


def test_what_is_too_large_for_memory_goes_to_a_private_folder_that_goes_again(
    broker: BlockingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "triolog-sql").symlink_to(tmp_path / "elsewhere")
    broker.create_topic("t")
    broker.append("t", [b'{"a":1}'])
    for _ in range(2):
        with ask(broker, "select * from t") as answer, ask(broker, "select 1"):
            folders = [path for path in tmp_path.iterdir() if not path.is_symlink()]
            assert [path.stat().st_mode & 0o777 for path in folders] == [0o700, 0o700]
            assert list(answer.batches())
        assert [path.name for path in tmp_path.iterdir()] == ["triolog-sql"]
    with pytest.raises(SqlError):
        rows(broker, "select nope from t")
    assert [path.name for path in tmp_path.iterdir()] == ["triolog-sql"]


def test_thousands_of_names_that_differ_in_case_only_take_no_minutes() -> None:
    names = [
        "".join(letter.upper() if number >> place & 1 else letter for place, letter in enumerate("abcdefghijklm"))
        for number in range(8_192)
    ]
    begin = time.process_time()
    made = _names(names)
    assert len(_unique(names + names)) == 2 * len(names)
    assert time.process_time() - begin < 5
    assert list(made.values()) == names
    assert len({name.lower() for name in made}) == len(names)


def test_files_and_topics_of_one_name_are_told_apart(broker: BlockingBroker, tmp_path: Path) -> None:
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        broker.create_topic("planes.csv")
        broker.append("planes.csv", [b'{"a":"topic"}'])
        with pytest.raises(SqlError, match="No files found"):
            rows(broker, "select * from 'planes.csv'")
        Path("planes.csv").write_text("a\nfile\n")
        assert rows(broker, "select a from 'planes.csv'") == [{"a": "file"}]
        assert rows(broker, 'select a from "planes.csv"') == [{"a": "topic"}]
        assert rows(broker, "select f.a from \"planes.csv\" t, './planes.csv' f where t.a = 'topic'") == [{"a": "file"}]
        with pytest.raises(SqlError, match="a file in single quotes and a topic in double ones"):
            rows(broker, "select * from 'planes.csv', \"planes.csv\"")
    finally:
        os.chdir(before)
