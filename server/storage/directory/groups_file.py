"""`groups.json`: what groups were configured with, in every log directory beside `topics.json` (our own; Kafka keeps it in its
metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, "groups": {"name": {"key": "value"}}, "crc32c": c}`; the copy with the highest
generation counts. A copy that cannot be read keeps the server from starting: records would be delivered otherwise than agreed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ..disk.filesystem import FileSystem
from .checked_json import decode_checked, encode_checked
from .state_files import read_state, write_state

GROUPS_FILE: Final = "groups.json"
REMEDY: Final = (
    "copy the one of another log directory, or of a backup, over it; without the file groups are configured as the server is"
)


@attrs.frozen
class GroupsState:
    """What the file says."""

    generation: int = 0
    overrides: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """By group, without those that have none."""


def encode_groups(state: GroupsState) -> bytes:
    groups = {name: dict(sorted(keys.items())) for name, keys in sorted(state.overrides.items())}
    return encode_checked({"generation": state.generation, "groups": groups})


def decode_groups(path: str, data: bytes) -> GroupsState:
    """Raises CheckpointError naming the file and what is wrong with it."""
    return decode_checked(path, data, _state, remedy=REMEDY)


def _state(document: dict[str, Any]) -> GroupsState:
    groups = {str(name): {str(key): str(value) for key, value in keys.items()} for name, keys in document["groups"].items()}
    return GroupsState(int(document["generation"]), groups)


def read_groups(fs: FileSystem, directory: str) -> GroupsState:
    """What a log directory knows; generation 0 when there is no file. Raises CheckpointError, OSError."""
    try:
        return read_state(fs, f"{directory}/{GROUPS_FILE}", decode_groups)
    except FileNotFoundError:
        return GroupsState()


def write_groups(fs: FileSystem, directory: str, state: GroupsState, *, durable: bool) -> None:
    """Put the file in place; on the device when this returns. Raises FileTooLargeError, OSError."""
    write_state(fs, f"{directory}/{GROUPS_FILE}", encode_groups(state), durable=durable)
