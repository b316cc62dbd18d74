"""Which quota holds for whom, who shares it, and for how long who is above it is quiet. Rates over the sliding window of
quotas, against a model that keeps everything that was ever used. The quota of changes of topics, against a naive model: tokens
that come back at the bound, eleven seconds' worth at most."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.server.access import quotas as module
from triolog.server.access.quotas import (
    ALLOWED,
    LEAST_WINDOW_S,
    SAMPLE_COUNT,
    SAMPLE_S,
    ClientQuotas,
    Mutation,
    MutationBuckets,
    QuotaRate,
)
from triolog.server.system.client_memory import deep_bytes

KEY = module.PRODUCER_BYTE_RATE
ORDER: list[module.QuotaEntity] = [
    module.checked_entity(parts)
    for parts in [
        [("user", "u"), ("client-id", "c")],
        [("user", "u"), ("client-id", None)],
        [("user", "u")],
        [("user", None), ("client-id", "c")],
        [("user", None), ("client-id", None)],
        [("user", None)],
        [("client-id", "c")],
        [("client-id", None)],
    ]
]
"""The first that is there holds for client c of user u."""


def with_quotas(*quotas: tuple[module.QuotaEntity, float], key: str = KEY) -> ClientQuotas:
    made = ClientQuotas()
    made.replace({entity: {key: bound} for entity, bound in quotas})
    return made


def bound_of(quotas: ClientQuotas, user: str = "u", client_id: str = "c") -> float:
    return quotas.largest_burst(KEY, user, client_id, 0.0) / 10


def test_of_several_quotas_the_first_in_order_holds() -> None:
    for size in range(1, len(ORDER) + 1):
        for chosen in itertools.combinations(range(len(ORDER)), size):
            assert bound_of(with_quotas(*((ORDER[place], float(place + 1)) for place in reversed(chosen)))) == chosen[0] + 1


def test_a_quota_holds_for_its_own_entity_and_key_only() -> None:
    quotas = with_quotas((module.checked_entity([("user", "u")]), 1.0), (module.checked_entity([("client-id", "c")]), 2.0))
    assert bound_of(quotas, "other", "other") == math.inf
    assert quotas.use(KEY, "other", "other", 1e9, 0.0) == 0.0
    quotas = ClientQuotas()
    quotas.replace({ORDER[0]: {module.CONSUMER_BYTE_RATE: 1.0}, ORDER[7]: {KEY: 5.0}})
    assert bound_of(quotas) == 5.0


@pytest.mark.parametrize(
    ("entity", "other", "is_shared"),
    [
        ([("user", "u")], ("u", "d"), True),
        ([("user", None)], ("u", "d"), True),
        ([("user", None)], ("v", "c"), False),
        ([("client-id", "c")], ("v", "c"), True),
        ([("client-id", None)], ("v", "c"), True),
        ([("client-id", None)], ("u", "d"), False),
        ([("user", "u"), ("client-id", None)], ("u", "d"), False),
        ([("user", None), ("client-id", "c")], ("v", "c"), False),
    ],
    ids=str,
)
def test_a_quota_is_shared_by_its_owners(entity: list[tuple[str, str | None]], other: tuple[str, str], is_shared: bool) -> None:
    quotas = with_quotas((module.checked_entity(entity), 10.0))
    assert quotas.use(KEY, "u", "c", 100.0, 0.0) == 0.0
    assert (quotas.use(KEY, *other, 100.0, 0.0) > 0) == is_shared


gaps = st.sampled_from([0.0, 0.3, 1.0, 4.0, 10.0, 11.0, 60.0])


@given(st.lists(st.tuples(gaps, st.integers(0, 400)), max_size=60))
def test_a_use_is_told_what_the_rate_says(uses: list[tuple[float, int]]) -> None:
    """Also where it is far below the bound, which is answered without a look at the window."""
    quotas, rate, now = with_quotas((ORDER[2], 20.0)), module.QuotaRate(), 0.0
    for gap, amount in uses:
        now += gap
        rate.add(amount, now)
        assert quotas.use(KEY, "u", "c", amount, now) == round(rate.over_s(20.0, now), 3)


def test_what_was_used_is_not_forgotten_when_a_quota_changes() -> None:
    quotas = with_quotas((ORDER[2], 100.0))
    assert quotas.use(KEY, "u", "c", 1000.0, 0.0) == 0.0
    quotas.replace({ORDER[2]: {KEY: 50.0}})
    assert quotas.use(KEY, "u", "c", 0.0, 0.0) == 10.0
    quotas.replace({})
    assert quotas.use(KEY, "u", "c", 1e9, 0.0) == 0.0


def test_what_is_above_the_quota_is_not_used_and_what_is_larger_is_read_once() -> None:
    quotas = with_quotas((ORDER[2], 10.0), key=module.CONSUMER_BYTE_RATE)
    use = quotas.use_if_allowed
    assert use(module.CONSUMER_BYTE_RATE, "u", "c", 60.0, 0.0) == 0.0
    assert use(module.CONSUMER_BYTE_RATE, "u", "c", 60.0, 0.0) == 2.0
    assert use(module.CONSUMER_BYTE_RATE, "u", "c", 40.0, 0.0) == 0.0
    quotas = with_quotas((ORDER[2], 10.0), key=module.CONSUMER_BYTE_RATE)
    assert quotas.use_if_allowed(module.CONSUMER_BYTE_RATE, "u", "c", 1000.0, 0.0) == 0.0
    assert quotas.use_if_allowed(module.CONSUMER_BYTE_RATE, "u", "c", 1.0, 0.0) == pytest.approx(90.1)


def test_a_request_that_takes_long_makes_quiet_for_a_second_at_most() -> None:
    quotas = with_quotas((ORDER[7], 1.0), key=module.REQUEST_PERCENTAGE)
    assert quotas.counts_time
    assert quotas.use(module.REQUEST_PERCENTAGE, "u", "c", 10.5, 0.0) == 0.5
    assert quotas.use(module.REQUEST_PERCENTAGE, "u", "c", 1000.0, 0.0) == 1.0
    assert quotas.statistics.throttled == {module.REQUEST_PERCENTAGE: 2}
    assert quotas.statistics.throttled_s == {module.REQUEST_PERCENTAGE: 1.5}


def asked_for(quotas: ClientQuotas) -> tuple[bool, bool, bool]:
    """Of requests, of their time, of connections."""
    return quotas.is_active, quotas.counts_time, quotas.limits_connections


def test_nothing_is_asked_where_nothing_is_limited() -> None:
    quotas = ClientQuotas()
    assert asked_for(quotas) == (False, False, False)
    for entity, key, expected in (
        (ORDER[0], module.CONTROLLER_MUTATION_RATE, (True, False, False)),
        (ORDER[0], KEY, (True, False, False)),
        (ORDER[0], module.REQUEST_PERCENTAGE, (True, True, False)),
        (module.checked_entity([("ip", None)]), module.CONNECTION_CREATION_RATE, (False, False, True)),
    ):
        quotas.replace({entity: {key: 1.0}})
        assert asked_for(quotas) == expected


def connections(quotas: ClientQuotas, address: str, count: int) -> list[float]:
    return [quotas.connect(address, 0.0) for _ in range(count)]


def test_an_address_has_its_own_quota_or_the_default_each_for_itself() -> None:
    quotas = ClientQuotas()
    quotas.replace(
        {
            module.checked_entity([("ip", None)]): {module.CONNECTION_CREATION_RATE: 1.0},
            module.checked_entity([("ip", "10.0.0.1")]): {module.CONNECTION_CREATION_RATE: 2.0},
            module.checked_entity([("ip", "0:0::1")]): {module.CONNECTION_CREATION_RATE: 3.0},
        }
    )
    for address, allowed in [("10.0.0.1", 20), ("10.0.0.2", 10), ("10.0.0.3", 10), ("::1", 30)]:
        assert connections(quotas, address, allowed) == [0.0] * allowed
        assert 0 < quotas.connect(address, 0.0) <= 1.0


def test_a_connection_that_was_refused_does_not_count() -> None:
    quotas = ClientQuotas()
    quotas.replace({module.checked_entity([("ip", None)]): {module.CONNECTION_CREATION_RATE: 1.0}})
    assert connections(quotas, "10.0.0.1", 10) == [0.0] * 10
    assert connections(quotas, "10.0.0.1", 100) == [1.0] * 100
    assert quotas.connect("10.0.0.1", 11.0) == 0.0


def test_many_client_ids_do_not_fill_the_memory_and_recent_users_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 100)
    quotas = with_quotas((module.checked_entity([("client-id", None)]), 10.0))
    for number in range(1000):
        quotas.use(KEY, "u", f"client-{number}", 1.0, number / 1000)
        quotas.use(KEY, "u", "greedy", 1.0, number / 1000)
        assert len(quotas._rates) <= 100
        assert len(quotas._limits) <= 100
    assert quotas.use(KEY, "u", "greedy", 0.0, 1.0) > 0


def test_long_names_have_their_own_use_and_take_little_memory() -> None:
    quotas = with_quotas((ORDER[7], 10.0))
    first, second = "c" * 30_000, "c" * 30_001
    assert quotas.use(KEY, "u", first, 1_000.0, 0.0) > 0
    assert quotas.use(KEY, "u", second, 1.0, 0.0) == 0
    assert quotas.use(KEY, "u", first, 1.0, 0.0) > 0
    assert deep_bytes(list(quotas._limits)) + deep_bytes(list(quotas._rates)) < 2_000


Uses = list[tuple[float, float]]
"""(seconds since the use before, amount)."""
rate_gaps = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 10.0, 11.0, 100.0]), st.integers(0, 200).map(lambda n: n / 8))
uses = st.lists(st.tuples(rate_gaps, st.integers(0, 1000).map(float)), max_size=60)


def rate_model(used: Uses, now_s: float) -> tuple[float, float]:
    """(rate, window) from the whole history: it is cut into samples, of which the last ones count that are not too old."""
    samples: list[list[tuple[float, float]]] = []
    at = 0.0
    for gap, amount in used:
        at += gap
        if samples and at < samples[-1][0][0] + SAMPLE_S:
            samples[-1].append((at, amount))
        else:
            samples.append([(at, amount)])
    counted = [sample for sample in samples[-SAMPLE_COUNT:] if sample[-1][0] > now_s - SAMPLE_COUNT * SAMPLE_S]
    elapsed = now_s - counted[0][0][0] if counted else 0.0
    missing = max(0, SAMPLE_COUNT - 1 - math.floor(elapsed / SAMPLE_S)) * SAMPLE_S
    window = elapsed + missing
    return sum(amount for sample in counted for _, amount in sample) / window, window


@given(uses, rate_gaps)
def test_the_rate_is_that_of_the_model(used: Uses, behind: float) -> None:
    rate, now = QuotaRate(), 0.0
    for count, (gap, amount) in enumerate(used):
        now += gap
        rate.add(amount, now)
        assert (rate.per_second(now), rate.window_s(now)) == rate_model(used[: count + 1], now)
    now += behind
    assert (rate.per_second(now), rate.window_s(now)) == rate_model(used, now)


@example([1848, 727, 329, 796, 1848, 1808, 697], 72)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80), st.integers(1, 1000))
def test_who_is_quiet_for_as_long_as_he_is_told_stays_near_the_bound(amounts: list[int], bound: int) -> None:
    """All of a burst that fits into the least window is free. A pause that is longer than the window begins a new one, as in
    Kafka: bursts that need such pauses come to at most 21/11 of the bound, and others to the bound."""
    rate, now, longest = QuotaRate(), 0.0, 0.0
    for amount in amounts:
        rate.add(amount, now)
        longest = max(longest, pause := rate.over_s(bound, now))
        now += pause
    share = 1.0 if longest < SAMPLE_S else (SAMPLE_COUNT * SAMPLE_S + LEAST_WINDOW_S) / (SAMPLE_COUNT * SAMPLE_S)
    assert sum(amounts) <= bound * (now * share + LEAST_WINDOW_S) + max(amounts)


@pytest.mark.parametrize(("amount", "seconds"), [(1000.0, 0.0), (1001.0, 0.01), (3000.0, 20.0)])
def test_a_burst_is_measured_by_what_it_is_over_ten_seconds(amount: float, seconds: float) -> None:
    rate = QuotaRate()
    rate.add(amount, 5.0)
    assert rate.over_s(100.0, 5.0) == pytest.approx(seconds)


def test_what_is_taken_back_was_not_used() -> None:
    rate = QuotaRate()
    rate.add(70.0, 0.0)
    rate.add(-70.0, 0.0)
    assert rate.per_second(0.5) == 0.0


def test_nothing_is_in_the_window_eleven_seconds_after_the_last_use() -> None:
    rate = QuotaRate()
    assert rate.is_unused(0.0)
    rate.add(1.0, 0.0)
    rate.add(1.0, 0.9)
    assert not rate.is_unused(11.8)
    assert rate.is_unused(11.9)


ME = ("user", None)
STEPS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 40), st.booleans()), max_size=30)


def bucket_model(bound: int, steps: list[tuple[int, int, bool]]) -> list[tuple[bool, int]]:
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
    for one, (allowed, throttle_ms) in zip(found, bucket_model(bound, steps), strict=True):
        assert one.is_allowed == allowed or abs(one.throttle_s) < 0.002, "owed less than a clock shows"
        assert abs(one.throttle_s * 1000 - throttle_ms) <= 2


def test_as_many_clients_are_remembered_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUCKETS", 4)
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
