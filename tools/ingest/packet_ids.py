"""Packet ids of a session at the broker: tells a message that is sent again from a new one. No sockets.

Exactly once, for messages of QoS 2 (MQTT, section 4.3.3), holds because each id changes its state together with a transaction
in triolog:

| the broker sends | stored in one transaction | then we send |
|---|---|---|
| PUBLISH | the record, and the id among the unreleased ones | PUBREC |
| PUBLISH again, marked so, with an unreleased id | nothing | PUBREC |
| PUBREL | the id no longer is unreleased | PUBCOMP |

The broker may use an id for another message only after PUBCOMP, when no state has it any more. The unreleased ids are the
metadata of an offset that the transaction commits, so a process that starts finds exactly those of the visible records.

A message that is not marked as sent again is always stored, and so is one whose content differs: a broker that was restored
from an older state may reuse an id early, and the message is then new.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from .mapping import DIGEST_BYTES, Message
from .settings import MAX_UNACKNOWLEDGED

_ID: Final = struct.Struct(f">H{DIGEST_BYTES}s")

Unreleased = Mapping[int, bytes]
"""Packet id -> digest, of messages that are stored and whose ids the broker has not released."""


@attrs.frozen
class Admitted:
    """The messages of a batch that are new, and the numbers of the others."""

    new: list[Message]
    avoided: int
    reused: int


def fitting(messages: Iterable[Message], unreleased: Unreleased, released: Iterable[int], *, is_over: bool) -> list[Message]:
    """Leave out what is above the limit of unreleased ids, and all later messages of QoS 2, so that their order stays.

    A broker that heeds `receive_maximum` sends no such messages. `is_over`: some were left out before.
    """
    space = 0 if is_over else MAX_UNACKNOWLEDGED - len(unreleased.keys() - set(released))
    kept = []
    for message in messages:
        if message.qos == 2 and message.packet_id not in unreleased:
            space -= 1
            if space < 0:
                continue
        kept.append(message)
    return kept


def admit(messages: Iterable[Message], unreleased: Unreleased) -> Admitted:
    """Leave out messages that are stored already, and those that are in the batch twice."""
    seen = dict(unreleased)
    new: list[Message] = []
    avoided = reused = 0
    for message in messages:
        if message.qos:
            digest, known = message.digest, seen.get(message.packet_id)
            if known == digest and message.dup:
                avoided += 1
                continue
            reused += known is not None
            seen[message.packet_id] = digest
        new.append(message)
    return Admitted(new, avoided, reused)


def after(unreleased: Unreleased, stored: Iterable[Message], released: Iterable[int]) -> dict[int, bytes]:
    """Return the unreleased ids after a transaction."""
    gone = set(released)
    kept = {packet_id: digest for packet_id, digest in unreleased.items() if packet_id not in gone}
    return kept | {message.packet_id: message.digest for message in stored if message.qos == 2}


def to_text(unreleased: Unreleased) -> str:
    """As the metadata of an offset has it."""
    assert len(unreleased) <= MAX_UNACKNOWLEDGED, f"{len(unreleased)} packet ids are not released"
    return base64.b64encode(b"".join(_ID.pack(*each) for each in unreleased.items())).decode()


def from_text(text: str | None) -> dict[int, bytes]:
    """Raises ValueError."""
    try:
        return dict(_ID.iter_unpack(base64.b64decode(text or "", validate=True)))
    except struct.error as exc:
        raise ValueError(f"not packet ids: {exc}") from None
