"""Connections that outlive their broker: a reset gives their sockets to the next life. For tests only.

What is under way is answered with an error after which clients ask again, as they do when a broker was restarted. A
connection with a login, with TLS, with half a request or with unsent answers ends instead, and so does one whose request has no
such error.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import ApiKey, ServedBy
from ....protocol.kafka.connection import Request
from ...listeners.connections.sockets import Listener
from ...listeners.kafka.error_answers import error_response
from ...listeners.kafka.session import KafkaSession, Turn

FIRST_FETCH_WITH_SESSIONS: Final = 7


def hand_over(listener: Listener) -> Iterator[socket.socket]:
    """Take no more requests on a listener's connections; yield another handle of each socket that can go on."""
    for session, _ in list(listener.sessions()):
        if isinstance(session, KafkaSession) and listener.tls is None and not session.logs_in:
            stream = session.transport.stream.socket
            with contextlib.suppress(OSError):  # it is closed already, or there are no more descriptors
                if _end_turns(session):
                    yield socket.fromfd(stream.fileno(), stream.family, stream.type)


def _end_turns(session: KafkaSession) -> bool:
    """End the turns of a session; return whether the peer has a response to each of its requests."""
    turns = session.turns_to_end() if session.transport.is_open else None
    return turns is not None and all(map(_end, turns)) and session.transport.is_open and session.transport.is_drained


def _end(turn: Turn) -> bool:
    request = turn.request
    code = _code(request)
    if code is None or request.body is None:
        return False
    if request.api.key is ApiKey.PRODUCE and not request.body.acks:
        turn.discard()
    else:
        turn.answer(error_response(request.api, request.version, request.body, code))
    return True


def _code(request: Request) -> ErrorCode | None:
    key, served_by = request.api.key, request.api.served_by
    if key is ApiKey.FETCH and request.version >= FIRST_FETCH_WITH_SESSIONS:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        return ErrorCode.SHARE_SESSION_NOT_FOUND
    if served_by is ServedBy.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NOT_COORDINATOR if served_by in (ServedBy.GROUP, ServedBy.TRANSACTION) else None
