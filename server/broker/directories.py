"""The log directories, as people see them."""

from __future__ import annotations

import attrs

from ...protocol.types import TopicPartition
from ..actors.manager.descriptions import DirectoryContents, DirectoryDescription, describe_directories, directory_contents
from ..actors.manager.log_manager import LogManager


@attrs.frozen(eq=False, repr=False)
class Directories:
    """Every configured log directory, those that failed too."""

    _manager: LogManager

    def describe(self) -> list[DirectoryDescription]:
        """Whether each serves, what lies there unserved, and how its reserve stands."""
        return describe_directories(self._manager)

    async def contents(self) -> list[DirectoryContents]:
        """The partitions that are served from each, their sizes, and the room on its device."""
        return await directory_contents(self._manager)

    async def feed_watchdog(self) -> None:
        """Return when each directory in service has forced a small write to its device. Raises LogDirectoryError when the last
        one could not."""
        await self._manager.log_directories.feed_watchdog(self._manager.now_ms())

    def of(self, topic_partition: TopicPartition) -> str:
        """The log directory that holds a partition. Raises RequestError."""
        return self._manager.topics.partition(topic_partition).directory.path
