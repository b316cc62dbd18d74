"""How the limit of open files is shared, and what a server says to one that is too low. What a process has written to disks.
What the kernel counts of a connection. The ledger of what the server keeps for clients: shares, refusals, and that nothing is
lost or counted twice."""

from __future__ import annotations

import logging
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator.share_group_records import ShareGroupMemberMetadataValue
from triolog.protocol.errors import ErrorCode, InvalidConfigError, RequestError
from triolog.server.config.broker_config import BrokerConfig
from triolog.server.system import open_files, tcp_info
from triolog.server.system.block_devices import process_written_bytes
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
from triolog.server.system.tcp_info import TcpBytes, tcp_bytes

LIMITS = st.integers(open_files.LEAST_LIMIT, 5000) | st.sampled_from([2**16, 10**6])


def limit_is(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    monkeypatch.setattr("triolog.server.system.open_files.resource.getrlimit", lambda _: (soft, soft))


@pytest.mark.parametrize(
    ("soft", "connections", "log_files"),
    [
        (64, 10, 8),
        (128, 40, 30),
        (256, 100, 75),
        (1024, 460, 396),
        (open_files.limit_for_most_connections(), open_files.MOST_CONNECTIONS, 1000 - open_files.MOST_SPARE),
        (10**6, open_files.MOST_CONNECTIONS, open_files.MOST_LOG_FILES - open_files.MOST_SPARE),
        (resource.RLIM_INFINITY, open_files.MOST_CONNECTIONS, open_files.MOST_LOG_FILES - open_files.MOST_SPARE),
    ],
    ids=str,
)
def test_connections_and_files_of_logs_have_half_of_what_is_left_each(
    soft: int, connections: int, log_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_is(monkeypatch, soft)
    assert BrokerConfig(data_dirs=("d",)).max_connections == open_files.default_max_connections() == connections
    assert open_files.log_file_budget(connections) == log_files
    open_files.check_open_files(connections)


@given(limit=LIMITS, wanted=st.integers(1, 3000))
def test_the_shares_are_never_more_than_the_limit_and_what_is_refused_says_what_is_enough(limit: int, wanted: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        limit_is(monkeypatch, limit)
        for connections in (open_files.default_max_connections(), wanted):
            try:
                open_files.check_open_files(connections)
            except InvalidConfigError as exc:
                assert connections == wanted
                needed, most = (int(number) for number in re.findall(r"needs (\d+) open.* to at most (\d+)", exc.message)[0])
                open_files.check_open_files(most)
                limit_is(monkeypatch, needed - 1)
                with pytest.raises(InvalidConfigError):
                    open_files.check_open_files(connections)
                limit_is(monkeypatch, needed)
                open_files.check_open_files(connections)
                limit_is(monkeypatch, limit)
            else:
                files = open_files.log_file_budget(connections)
                assert open_files.RESERVED + open_files.http_connections() + connections + files <= limit
                assert open_files.LEAST_LOG_FILES - open_files.LEAST_LOG_FILES // 4 <= files <= open_files.MOST_LOG_FILES


def test_a_limit_that_is_too_low_for_any_server_is_said_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_is(monkeypatch, open_files.LEAST_LIMIT - 1)
    with pytest.raises(InvalidConfigError, match=f"may open 63 files, but a server needs at least {open_files.LEAST_LIMIT}"):
        open_files.check_open_files(1)


def test_it_is_the_kernel_s_count_and_not_known_where_the_system_does_not_tell(tmp_path: Path) -> None:
    told = tmp_path / "io"
    assert process_written_bytes(str(told)) is None
    told.write_text("rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n")
    assert process_written_bytes(str(told)) == 8192
    told.write_text("rchar: 5\nwrite_bytes: many\n")
    assert process_written_bytes(str(told)) is None


def test_bytes_of_both_directions_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"x" * 1000)
            received = 0
            while received < 1000:
                received += len(server.recv(1000))
            assert tcp_bytes(server).received == 1000
            server.sendall(b"y" * 77)
            assert len(client.recv(77, socket.MSG_WAITALL)) == 77
            client.sendall(b"z")  # carries the confirmation, if nothing else has
            assert server.recv(1) == b"z"
            assert tcp_bytes(server) == TcpBytes(1001, 77)


def test_nothing_is_known_of_what_is_no_tcp_connection() -> None:
    first, second = socket.socketpair()
    with first, second:
        assert tcp_bytes(first) == TcpBytes(-1, -1)
    assert tcp_bytes(first) == TcpBytes(-1, -1), "it is closed"


def test_nothing_is_known_where_the_system_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldKernel:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            return b"\0" * 104

    assert tcp_bytes(OldKernel()) == TcpBytes()
    monkeypatch.setattr(tcp_info, "TCP_INFO", None)
    unasked: Any = object()
    assert tcp_bytes(unasked) == TcpBytes()


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
