"""Whole valid requests, drawn by chance. `TRIOLOG_TEST_REQUEST_FUZZ=1000000` sends as many, and
`TRIOLOG_TEST_REQUEST_FUZZ_SEED=...` others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.native import messages

from tests.support.counts import counts, session_seed

from .run import VARIANTS, fuzzed_broker, run

pytestmark = pytest.mark.merge

REQUESTS: Final = int(os.environ.get("TRIOLOG_TEST_REQUEST_FUZZ") or counts(100_000, commit=4500))
SEED: Final = int(os.environ.get("TRIOLOG_TEST_REQUEST_FUZZ_SEED") or session_seed())
EACH: Final = REQUESTS // len(VARIANTS)


@pytest.mark.timeout(120 + REQUESTS // 20)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_whatever_is_asked_for_has_an_answer_or_a_reason_and_leaves_nothing_behind(fast_path: Path, variant: str) -> None:
    async with fuzzed_broker(fast_path, **VARIANTS[variant]()) as fuzzed:
        await run(fuzzed, EACH, SEED)
        asked = {name.split(" v")[0].removeprefix("native ") for name in fuzzed.asked}
        assert asked >= {api.name for api in APIS.values()} | (messages.REQUESTS.keys() - {"hello"}), "some were never sent"
        assert fuzzed.ended < EACH // 20, "connections end so often that little is carried out"
