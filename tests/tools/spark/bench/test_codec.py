from __future__ import annotations

from triolog.protocol.records.batch import iter_batches
from triolog.tools.spark.bench.codec import codec_lines, make_rows, pieces_of


def test_all_lines_are_measured() -> None:
    lines = list(codec_lines(2000, 1))
    assert len(lines) == 10
    assert sum(line.target is not None for line in lines) == 6
    assert all(sample > 0 for line in lines for sample in line.samples)


def test_rows_have_the_sizes_that_the_table_names_and_pieces_hold_every_record_once() -> None:
    [fixed] = make_rows(1000, is_random=False)
    assert {len(value) for value in fixed.column("value").to_pylist()} == {100}
    assert {len(key) for key in fixed.column("key").to_pylist()} == {8}
    [drawn] = make_rows(1000, is_random=True)
    sizes = [len(value) for value in drawn.column("value").to_pylist()]
    assert (min(sizes), max(sizes)) == (50, 150)
    pieces = list(pieces_of(make_rows(3000, is_random=False)))
    assert [header.records_count for piece in pieces for header, _ in iter_batches(piece)] == [1000] * 3
