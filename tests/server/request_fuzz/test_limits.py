"""No request of the fuzz takes long in one go, and many of them leave no more memory behind than few."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.limits import MIB

from tests.support.counts import counts

from .limits import longest_turns, memory_of, too_long
from .run import VARIANTS, fuzzed_broker
from .test_whole_requests import SEED

pytestmark = pytest.mark.merge  # every line of Python is counted

TRACED: Final = counts(3000, commit=200)
MEASURED: Final = counts(5000)
KEPT_BYTES: Final = MIB
"""Topics and groups that are new."""
KEPT_PER_REQUEST: Final = 200
"""Segments and producers; a session, or the least of what belongs to one, has some thousand."""
PEAK_BYTES: Final = 48 * MIB
"""While four clients ask at a time."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_no_request_keeps_others_waiting_for_long(fast_path: Path, variant: str) -> None:
    async with fuzzed_broker(fast_path, **VARIANTS[variant]()) as fuzzed:
        longest = await longest_turns(fuzzed, TRACED, SEED)
    assert not (found := too_long(longest)), "\n".join(found)
    assert len(longest) > 50, "few APIs were asked for anything"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_requests_leave_no_memory_behind_and_take_little(fast_path: Path, variant: str) -> None:
    async with fuzzed_broker(fast_path, **VARIANTS[variant]()) as fuzzed:
        memory = await memory_of(fuzzed, MEASURED, SEED)
    assert memory.kept_bytes <= KEPT_BYTES + KEPT_PER_REQUEST * MEASURED, memory.where
    assert memory.peak_bytes <= PEAK_BYTES, memory
