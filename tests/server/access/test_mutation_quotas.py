"""The quota of changes of topics, against a naive model: tokens that come back at the bound, eleven seconds' worth at most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.access import quotas
from triolog.server.access.quotas import ALLOWED, ClientQuotas, Mutation, MutationBuckets

ME = ("user", None)
STEPS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 40), st.booleans()), max_size=30)


def model(bound: int, steps: list[tuple[int, int, bool]]) -> list[tuple[bool, int]]:
    """(allowed, throttle in ms) after each step, in whole thousandths of a token."""
    tokens, answers = bound * 11_000, []
    for passed_ms, partitions, is_strict in steps:
        tokens = min(bound * 11_000, tokens + bound * passed_ms)
        allowed = not (is_strict and tokens < 0)
        if allowed:
            tokens -= partitions * 1000
        shown = min(tokens, 0) if not (is_strict and allowed) else 0
        answers.append((allowed, round(-shown / bound)))
    return answers


@given(st.integers(1, 10), STEPS)
def test_it_is_a_bucket_of_tokens(bound: int, steps: list[tuple[int, int, bool]]) -> None:
    buckets, now_ms, found = MutationBuckets(), 0, []
    for passed_ms, partitions, is_strict in steps:
        now_ms += passed_ms
        found.append(buckets.use(ME, partitions, bound, now_ms / 1000, is_strict=is_strict))
    for one, (allowed, throttle_ms) in zip(found, model(bound, steps), strict=True):
        assert one.is_allowed == allowed or abs(one.throttle_s) < 0.002, "owed less than a clock shows"
        assert abs(one.throttle_s * 1000 - throttle_ms) <= 2


def test_who_understands_the_error_is_refused_while_it_owes() -> None:
    buckets = MutationBuckets()
    assert buckets.use(ME, 12, 1.0, 0, is_strict=True) == ALLOWED
    assert buckets.use(ME, 1, 1.0, 0, is_strict=True) == Mutation(False, 1.0)
    assert buckets.use(ME, 1, 1.0, 0.25, is_strict=True) == Mutation(False, 0.75)
    assert buckets.use(ME, 1, 1.0, 1.0, is_strict=True) == ALLOWED


def test_who_does_not_gets_what_it_wants_and_has_to_be_quiet() -> None:
    buckets = MutationBuckets()
    assert buckets.use(ME, 12, 1.0, 0, is_strict=False) == Mutation(True, 1.0)
    assert buckets.use(ME, 3, 1.0, 0, is_strict=False) == Mutation(True, 4.0)


def test_as_many_clients_are_remembered_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_BUCKETS", 4)
    buckets = MutationBuckets()
    for number in range(5):
        buckets.use((str(number), None), 12, 1.0, number / 10, is_strict=True)
    assert not buckets.use(("3", None), 1, 1.0, 0.5, is_strict=True).is_allowed
    assert buckets.use(("0", None), 1, 1.0, 0.5, is_strict=True).is_allowed, "it was forgotten"


def test_the_most_exact_quota_holds_and_what_it_throttles_is_counted() -> None:
    quotas = ClientQuotas()
    quotas.replace(
        {
            (("user", None),): {"controller_mutation_rate": 100.0},
            (("client-id", "c"), ("user", "u")): {"controller_mutation_rate": 1.0},
        }
    )
    assert quotas.is_active
    assert quotas.mutate("u", "c", 12, 0, is_strict=False) == Mutation(True, 1.0)
    assert quotas.mutate("u", "other", 12, 0, is_strict=False) == ALLOWED
    assert quotas.statistics.throttled == {"controller_mutation_rate": 1}
    quotas.replace({})
    assert quotas.mutate("u", "c", 12, 0, is_strict=True) == ALLOWED
