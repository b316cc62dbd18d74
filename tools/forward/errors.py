"""Errors of forwarding: invalid settings, a link or a topic that cannot continue, and failures that may pass.

Each message names the next step for the operator. The consequence depends on the cause: `docs/forward.md` has the table.
"""

from __future__ import annotations

from typing import Final, Self

from ...protocol.errors import TriologError
from .pacing import Failure

NO_SUCH_TOPIC: Final = "the source has no such topic yet"
"""The trouble of a topic that the link waits for."""


class ForwardError(TriologError):
    """Base of what forwarding raises on purpose."""

    def bare(self) -> Self:
        """The same without traceback and causes: those keep frames, and with them producers and their connections."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class SettingsError(ForwardError):
    """The settings or a request are invalid: a key that does not exist, two links to one partition."""


class LinkStoppedError(ForwardError):
    """The link cannot go on before somebody has done something: another forwarder has taken it over."""


class TopicStoppedError(ForwardError):
    """A topic of a link cannot continue; the others can. The link checks it again from time to time."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(f"{topic}: {message}")
        self.topic = topic
        self.message = message


class RecordsRefusedError(ForwardError):
    """The upstream takes some of the records that were sent to a partition together not, whoever sends them."""

    def __init__(self, topic: str, partition: int, reason: str, *, is_size: bool, offset: int | None = None) -> None:
        super().__init__(f"{topic}-{partition}: {reason}")
        self.topic = topic
        self.partition = partition
        self.reason = reason
        self.is_size = is_size
        """Whether they are too large; another reason would be a timestamp or a key that is missing."""
        self.offset = offset
        """In the source, of a record that librdkafka did not accept: it is known, and the dead-letter topic cannot have it."""


class TargetRefusedError(ForwardError):
    """The upstream takes nothing for one of its topics: it is gone, or the right to it is."""

    def __init__(self, target: str, message: str) -> None:
        super().__init__(f"{target}: {message}")
        self.target = target
        self.message = message


class TryAgainError(ForwardError):
    """The upstream cannot be reached, or refuses for now: the link tries again later."""

    def __init__(self, message: str, failure: Failure = Failure.PASSING) -> None:
        super().__init__(message)
        self.failure = failure


class SourceFailedError(TryAgainError):
    """The same of the source."""
