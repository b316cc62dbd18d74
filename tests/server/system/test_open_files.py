"""How the limit of open files is shared, and what a server says to one that is too low."""

from __future__ import annotations

import re
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.broker_config import BrokerConfig
from triolog.server.system import open_files

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
                needed, most = (int(number) for number in re.findall(r"needs (\d+) open.* to (\d+) at most", exc.message)[0])
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
    with pytest.raises(InvalidConfigError, match=f"may open 63 files, and a server needs {open_files.LEAST_LIMIT} at least"):
        open_files.check_open_files(1)
