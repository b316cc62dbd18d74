"""The audit log's entries for changes that clients make, for every protocol."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import error_name
from ...broker import AuditLog
from .rights import Asker


def note_change(
    audit: AuditLog | None, asker: Asker, protocol: str, api: str, names: Iterable[str], codes: Iterable[int]
) -> None:
    """A client has asked for a change, of what `names` says, and was answered with these error codes. Values, which may be
    secrets, are not among the names. No audit log: nobody wants to know."""
    if audit is None:
        return
    session = asker.session
    audit.note(
        "change",
        principal=session.principal,
        host=session.transport.host,
        client_id=session.client_id,
        protocol=protocol,
        api=api,
        names=list(names),
        errors=[error_name(code) for code in codes if code],
    )
