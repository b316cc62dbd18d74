"""Topics and groups that a test names and the broker does not have: the error has the name that was probably meant."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, RequestError, UnknownTopicOrPartitionError
from ...broker import Broker
from ..faults.spelling import hint


def check_topic(core: Broker, topic: str) -> None:
    """Raises UnknownTopicOrPartitionError."""
    if topic not in (names := list(core.topics.names())):
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}{hint(topic, names)}")


def unknown_group(core: Broker, group: str) -> str | None:
    """What an error says of a group of any kind that has neither members nor offsets; None for one that is known."""
    names = core.groups.group_ids()
    return None if group in names else f"there is no group {group!r}{hint(group, names)}"


def check_group(core: Broker, group: str) -> None:
    """Raises RequestError, GROUP_ID_NOT_FOUND."""
    if (error := unknown_group(core, group)) is not None:
        raise RequestError(error, ErrorCode.GROUP_ID_NOT_FOUND)
