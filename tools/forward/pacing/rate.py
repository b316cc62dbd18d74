"""A cap on bytes a second, kept on the average: what is sent at once is paid for before more may follow.

Virtual scheduling (the generic cell rate algorithm of ATM): one number, the time at which everything sent so far is paid for.
"""

from __future__ import annotations

from typing import Final

BURST_S: Final = 0.2
"""What may go at once, in time at the rate: records that go one by one would be batches of one."""


class RateCap:
    """Asked before a record, told after it. Time is an argument in seconds. Owner: the link."""

    __slots__ = ("_bytes_per_second", "_paid_s")

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._paid_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next record; 0: it may go."""
        owed_s = self._paid_s - now_s
        return owed_s if owed_s > BURST_S else 0.0

    def sent(self, size: int, now_s: float) -> None:
        """So many bytes have gone."""
        self._paid_s = max(self._paid_s, now_s) + size / self._bytes_per_second
