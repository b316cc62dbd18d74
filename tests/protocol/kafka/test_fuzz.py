"""Frames drawn by chance. `TRIOLOG_TEST_KAFKA_FUZZ=10000000` draws as many, `TRIOLOG_TEST_KAFKA_FUZZ_SEED=...` others."""

from __future__ import annotations

import os
import struct
from random import Random
from typing import Final

import pytest
from triolog.protocol.kafka.apis import APIS, ApiKey

from tests.protocol.kafka import fuzz
from tests.support.counts import counts

INPUTS: Final = int(os.environ.get("TRIOLOG_TEST_KAFKA_FUZZ") or counts(300_000))
SEED: Final = int(os.environ.get("TRIOLOG_TEST_KAFKA_FUZZ_SEED") or 0)


@pytest.mark.timeout(60 + INPUTS // 1000)
def test_whatever_comes_is_a_request_or_refused() -> None:
    found = fuzz.run(INPUTS, SEED)
    assert found["requests"] > INPUTS // 20, "the frames are so broken that bodies are hardly looked at"
    assert found["refused"] > INPUTS // 20


def test_undamaged_seeds_are_requests_of_all_apis() -> None:
    requests = [fuzz.feed(frame) for frame in fuzz.seeds(Random(0))]
    assert {request.api.key for request in requests if request} == set(APIS)


def test_a_broken_invariant_is_reported_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: object, **__: object) -> None:
        raise IndexError("planted")

    frame = struct.pack(">hhih", ApiKey.LIST_GROUPS, 0, 1, -1)
    monkeypatch.setattr("triolog.protocol.schema.codec.read", planted)
    with pytest.raises(fuzz.BrokenInvariantError, match=f"IndexError instead of RemoteProtocolError for {frame.hex()}"):
        fuzz.feed(frame)
