"""The ledger of what the server keeps for clients: shares, refusals, and that nothing is lost or counted twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator.share_group_records import ShareGroupMemberMetadataValue
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.system.client_memory import (
    ACCOUNTS,
    ENTRY_BYTES,
    FREE_ITEMS,
    MAX_NAME_CHARS,
    PAYER,
    Account,
    ClientMemory,
    Payer,
    deep_bytes,
    new_payer,
    shortened,
)

LIMIT = 1_000_000


@pytest.fixture(autouse=True)
def nobody_pays() -> Iterator[None]:
    """Let no other test run in the name of a payer of this one."""
    token = PAYER.set(None)
    yield
    PAYER.reset(token)


def fill(account: Account, payer: Payer | None, size: int = 10_000) -> int:
    """Put entries in until one is refused; answers how many bytes the account has then."""
    PAYER.set(payer)
    for _ in range(LIMIT // size + 1):
        key = (payer, len(account))
        if not account.fits(key, size):
            break
        account.put(key, size)
    return account.used_bytes


def test_a_connection_has_half_of_what_others_leave_and_a_principal_three_quarters() -> None:
    account = ClientMemory(LIMIT).account("share groups")
    first, second, other = new_payer("User:a"), new_payer("User:a"), new_payer("User:b")
    one = fill(account, first)
    assert 0.45 * LIMIT < one <= LIMIT / 2
    two = fill(account, second)
    assert 0.7 * LIMIT < two <= 0.75 * LIMIT
    assert fill(account, other) > two, "the next principal finds something"
    assert account.used_bytes < LIMIT
    assert fill(account, None) <= LIMIT, "a program with a broker of its own has no share"


def test_one_payer_does_not_have_all_places_of_an_account() -> None:
    account = ClientMemory(LIMIT).account("share sessions", 1_000)
    fill(account, new_payer("User:a"), 1)
    assert len(account) == 500
    fill(account, new_payer("User:a"), 1)
    assert len(account) == 750
    PAYER.set(new_payer("User:b"))
    account.take("entry", 1)


def test_few_places_are_for_whoever_comes() -> None:
    account = ClientMemory(LIMIT).account("share sessions", FREE_ITEMS)
    fill(account, new_payer("User:a"), 1)
    assert len(account) == FREE_ITEMS


def test_what_grows_is_paid_by_the_client_that_lets_it_grow() -> None:
    account = ClientMemory(LIMIT).account("share groups")
    honest, attacker = new_payer("User:a"), new_payer("User:b")
    PAYER.set(honest)
    account.take("group", 1_000)
    PAYER.set(attacker)
    account.take("group", 400_000)
    PAYER.set(honest)
    account.take("other", 250_000)
    account.take("group", 400_000)
    PAYER.set(attacker)
    with pytest.raises(RequestError, match=r"^POLICY_VIOLATION"):
        account.take("group", 500_000)
    assert account.size_of("group") == 400_000


def test_what_does_not_grow_is_never_refused_and_a_replay_neither() -> None:
    memory = ClientMemory(LIMIT)
    account = memory.account("share groups")
    for number in range(20):
        account.put(number, 100_000)
    assert memory.used_bytes == 20 * (100_000 + ENTRY_BYTES), "what was accepted before the limit was lowered"
    account.take(1, 100_000)
    account.take(2, 50_000)
    with pytest.raises(RequestError, match=f"max_client_memory_bytes={LIMIT}"):
        account.take(20, 1)
    assert account.refused == 1


def test_a_refusal_has_the_code_of_its_api_and_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    account = ClientMemory(1_000).account("share groups")
    PAYER.set(new_payer("User:" + "a" * 500))
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            with pytest.raises(RequestError) as raised:
                account.take("group", 2_000, ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert [each.getMessage().partition(" principal=")[0] for each in caplog.records] == [
        "client memory refused: account='share groups'"
    ]
    assert len(caplog.records[0].getMessage()) < 400
    assert account.refused == 100


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 500)), max_size=60))
def test_the_ledger_is_the_sum_of_its_entries(steps: list[tuple[str, int, int]]) -> None:
    memory, payers = ClientMemory(3_000), [new_payer("a"), new_payer("a"), new_payer("b"), None]
    accounts, model = (
        {name: memory.account(full) for name, full in zip("ab", ACCOUNTS, strict=False)},
        dict[tuple[str, int], int](),
    )
    for name, number, size in steps:
        PAYER.set(payers[number])
        if name == "c":
            for each in accounts.values():
                each.drop(number)
            model = {key: value for key, value in model.items() if key[1] != number}
        elif accounts[name].fits(number, size - accounts[name].size_of(number)):
            accounts[name].put(number, size)
            model[name, number] = size
    assert memory.used_bytes == sum(size + ENTRY_BYTES for size in model.values()) <= 3_000
    for each in accounts.values():
        each.clear()
    assert (memory.used_bytes, memory._holdings) == (0, {})


def test_a_value_takes_at_least_what_its_texts_have() -> None:
    names = [f"{number:0100}" for number in range(50)]
    value = ShareGroupMemberMetadataValue(client_id="c" * 1_000, client_host="h", subscribed_topic_names=names)
    assert 6_000 < deep_bytes(value) < 12_000
    assert deep_bytes({"key": {b"1" * 5_000: (1, 2.0, None, True)}}) > 5_000


def test_long_names_are_remembered_as_digests() -> None:
    assert shortened("short") == "short"
    assert len(shortened("a" * 30_000)) <= MAX_NAME_CHARS
    assert shortened("a" * 30_000) != shortened("a" * 30_001)
