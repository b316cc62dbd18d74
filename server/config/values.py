"""Types of configuration values, beside numbers and text."""

from __future__ import annotations

import enum
import ipaddress
from typing import Final, NamedTuple, Self

import attrs

DAY_MS: Final = 86_400_000
DEFAULT_LINES_PER_MINUTE: Final = 100
"""Of one kind: what 100 connections that fail in the same way have to say, and 20 MB a day if that goes on."""


class DurabilityMode(enum.Enum):
    FSYNC = "fsync"
    GROUP = "group"
    OS = "os"


@attrs.frozen
class Durability:
    """The times at which appended bytes are forced to the device: `fsync`, `group:<ms>` or `os`.

    `interval_ms` is the oldest age that unsynced bytes may reach; it is 0 except for `group`.
    """

    mode: DurabilityMode
    interval_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `fsync`, `os` or `group:<ms>` (1 ms to one hour); ValueError says what was found."""
        name, _, argument = text.partition(":")
        if name == "group":
            if not argument.isascii() or not argument.isdigit() or not 1 <= int(argument) <= 3_600_000:
                raise ValueError(f"durability {text!r}: write group:<ms> with 1 to 3600000 ms, for example group:100")
            return cls(DurabilityMode.GROUP, int(argument))
        if text in ("fsync", "os"):
            return cls(DurabilityMode(text))
        raise ValueError(f"durability {text!r} is not one of fsync, group:<ms>, os")

    def __str__(self) -> str:
        return f"group:{self.interval_ms}" if self.mode is DurabilityMode.GROUP else self.mode.value


class RecordValidation(enum.Enum):
    FULL = "full"
    HEADER = "header"


class MigrationPolicy(enum.Enum):
    """Conversions of groups with members from one protocol of consumers to the other (KIP-848)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class DiskFullPolicy(enum.Enum):
    """The reaction of a topic to a lack of space: its device has less left than `disk_reserve_bytes`, all logs together exceed
    `log_max_bytes`, or a hold is at its bounds."""

    REFUSE = "refuse"
    DROP_OLDEST = "drop-oldest"


class GapPolicy(enum.Enum):
    """The default response to a reader at offsets whose records were damaged and removed; a reader may choose for itself. It is
    an error until the gap is accepted, or the records after the gap."""

    REFUSE = "refuse"
    SKIP = "skip"


FORMER_POLICIES: Final = {"expire-oldest": DiskFullPolicy.DROP_OLDEST}
"""Names that directories and settings may still have."""


class DataPermissions(enum.Enum):
    """Permissions of files and directories that the server makes, so that not the umask decides; existing ones keep theirs."""

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


_MODES: Final = {
    DataPermissions.OWNER: (0o600, 0o700),
    DataPermissions.GROUP: (0o640, 0o750),
    DataPermissions.UMASK: (None, None),
}


class LogLevel(enum.Enum):
    """The least important lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Address(NamedTuple):
    """An address to listen on or connect to; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT` or `[IPV6]:PORT`. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_NATIVE: Final = Address(host="127.0.0.1", port=9095)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host. Names count as reachable from elsewhere, except `localhost`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
