"""HTTP for people and programs beside the logs, on an address of a broker's.

Few connections; no TLS, no authentication: it is for a loopback address or a network of one's own. h11 comes with the extras
that need it, so whoever imports this module does so late.
"""

from __future__ import annotations

from functools import partial

from ....protocol.limits import MIB
from ...config.broker_config import Address
from ...system.open_files import http_connections
from ..connections.counters import report_bug
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport
from .access import Answer, HttpAnswer
from .session import MAX_BODY_BYTES, HttpSession


def http_listener(
    address: Address,
    answer: Answer,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    too_large: HttpAnswer | None = None,
    changes_nothing: bool = False,
) -> Listener:
    """HTTP on one address, with connections of its own: clients of the log cannot take their places. For a further one the
    connection that was idle for longest ends; with `changes_nothing`, which says that about answers, one that is being answered
    if none is idle. `too_large`: see `HttpSession`."""
    connections = http_connections()

    def open_session(transport: Transport) -> Served:
        report = partial(report_bug, transport.counters)
        session = HttpSession(
            transport.stream,
            transport.peer,
            answer,
            report,
            max_body_bytes,
            too_large=too_large,
            became_busy=transport.became_known,
            became_idle=transport.became_idle,
        )
        return Served(session.serve, session.stop_reading)

    admission = Admission.with_limits(connections, connections * MIB)
    admission.places.ends_busy = changes_nothing
    return Listener(address, admission, open_session, "http")
