"""Who may read what lies in a log directory (ours; Kafka leaves it to the umask)."""

from __future__ import annotations

import enum


class DataPermissions(enum.Enum):
    """Permissions of files and directories that the server makes; existing ones keep theirs."""

    OWNER = "owner"
    """0600 and 0700: nobody but the user that the server runs as."""
    GROUP = "group"
    """0640 and 0750: its group may read."""
    UMASK = "umask"
    """Whatever the umask of the process leaves."""

    @property
    def file_mode(self) -> int | None:
        """None: 0666 without what the umask takes away."""
        return _MODES[self][0]

    @property
    def directory_mode(self) -> int | None:
        """None: 0777 without what the umask takes away."""
        return _MODES[self][1]


_MODES = {
    DataPermissions.OWNER: (0o600, 0o700),
    DataPermissions.GROUP: (0o640, 0o750),
    DataPermissions.UMASK: (None, None),
}
