"""select() in the place of poll(), as Windows has it. tests/test_platforms.py runs a whole client over it."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest
from triolog.tools.client.blocking.polling import READABLE, WRITABLE, Poll, SelectPoll

BOTH = READABLE | WRITABLE


@pytest.fixture(params=[select.poll, SelectPoll])
def poll(request: pytest.FixtureRequest) -> Poll:
    made: Poll = request.param()
    return made


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(each) for each in socket.socketpair())
        near.setblocking(False)
        yield near, far


def fill(sending: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            sending.send(bytes(65536))


def test_both_report_what_a_socket_is_ready_for(poll: Poll, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    descriptor = near.fileno()
    poll.register(descriptor, READABLE)
    assert poll.poll(0) == []
    poll.register(descriptor, BOTH)
    assert poll.poll(None) == [(descriptor, WRITABLE)]
    far.send(b"espresso")
    assert poll.poll(None) == [(descriptor, BOTH)]
    fill(near)
    assert poll.poll(None) == [(descriptor, READABLE)]
    poll.register(descriptor, WRITABLE)
    assert poll.poll(0) == []
    poll.unregister(descriptor)
    assert poll.poll(1) == []
    with pytest.raises(KeyError):
        poll.unregister(descriptor)


def test_both_wake_the_reader_of_a_socket_that_was_closed(poll: Poll, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    poll.register(descriptor := near.fileno(), READABLE)
    poll.register(far.fileno(), READABLE)
    near.close()
    assert descriptor in dict(poll.poll(None))
    poll.unregister(descriptor)
    assert [each for each, _ in poll.poll(None)] == [far.fileno()]


def test_select_returns_early_so_that_ctrl_c_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    poll = SelectPoll()
    poll.register(pair[0].fileno(), READABLE)
    assert poll.poll(None) == []
