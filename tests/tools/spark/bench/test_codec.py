from __future__ import annotations

from click.testing import CliRunner
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.columnar.encode import Encoding
from triolog.tools.spark.bench.codec import main, make_rows, pieces_of


def test_all_rows_are_measured() -> None:
    result = CliRunner().invoke(main, ["--records", "1000", "--samples", "1", "--all"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 22
    assert sum("target" in line for line in lines) == 6


def test_rows_have_the_sizes_that_the_table_names_and_pieces_hold_every_record_once() -> None:
    [fixed] = make_rows(1000, is_random=False)
    assert {len(value) for value in fixed.column("value").to_pylist()} == {100}
    assert {len(key) for key in fixed.column("key").to_pylist()} == {8}
    [drawn] = make_rows(1000, is_random=True)
    sizes = [len(value) for value in drawn.column("value").to_pylist()]
    assert (min(sizes), max(sizes)) == (50, 150)
    pieces = list(pieces_of(make_rows(1000, is_random=False), Encoding(batch_records=100)))
    assert [header.records_count for piece in pieces for header, _ in iter_batches(piece)] == [100] * 10
