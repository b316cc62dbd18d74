from __future__ import annotations

from triolog.tools.forward.pacing import FIRST_BYTES, LEAST_BYTES, SLOW_S, Stretch, StretchSize

MOST = 16 * 1024 * 1024


def test_stretches_grow_up_to_their_limit_while_the_link_is_fast() -> None:
    size = StretchSize(MOST)
    size.went(1000, 0.1)
    assert size.bytes == FIRST_BYTES, "one that was not full says nothing"
    for _ in range(10):
        size.went(size.bytes, 0.1)
    assert size.bytes == MOST


def test_on_a_slow_link_they_shrink_until_one_takes_no_longer_than_is_well() -> None:
    size, rate = StretchSize(MOST), 50_000
    for _ in range(20):
        size.went(size.bytes, size.bytes / rate)
    assert LEAST_BYTES <= size.bytes <= 2 * SLOW_S * rate
    size = StretchSize(MOST)
    size.failed()
    assert size.bytes == FIRST_BYTES // 2
    for _ in range(20):
        size.failed()
    assert size.bytes == LEAST_BYTES, "one that failed is smaller the next time but never nothing"


def test_a_stretch_is_full_by_bytes_by_records_or_by_age() -> None:
    stretch = Stretch(begun_s=10.0, max_bytes=1000, max_records=5, max_delay_s=0.5)
    assert not stretch.is_full(10.4)
    assert stretch.is_full(10.5)
    stretch.bytes = 1000
    assert stretch.is_full(10.0)
    stretch.bytes, stretch.records = 0, 5
    assert stretch.is_full(10.0)
