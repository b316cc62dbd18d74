"""Files that say which keys were set while the server ran, in every log directory beside `topics.json` (our own; Kafka keeps
this in its metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, FIELD: {"name": {"key": "value"}}, "crc32c": c}`; the copy with the highest generation
counts. A copy that cannot be read keeps the server from starting: it would do something else than was agreed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ..disk.filesystem import FileSystem
from .checked_json import decode_checked, encode_checked
from .state_files import read_state, write_state


@attrs.frozen
class Overrides:
    """What such a file says."""

    generation: int = 0
    overrides: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Key and value by name, without the names that set nothing."""

    def changed(self, name: str, keys: Mapping[str, str]) -> Overrides:
        """The same with other keys of one name."""
        others = {each: values for each, values in self.overrides.items() if each != name}
        return attrs.evolve(self, overrides={**others, name: dict(keys)} if keys else others)


@attrs.frozen
class OverridesFile:
    """One kind of file."""

    name: str
    field: str
    without_it: str
    """What holds without the file, for whoever has to repair it."""

    def encode(self, overrides: Overrides) -> bytes:
        named = {name: dict(sorted(keys.items())) for name, keys in sorted(overrides.overrides.items())}
        return encode_checked({"generation": overrides.generation, self.field: named})

    def decode(self, path: str, data: bytes) -> Overrides:
        """Raises CheckpointError naming the file and what is wrong with it."""
        remedy = f"copy the one of another log directory, or of a backup, over it; without the file {self.without_it}"
        return decode_checked(path, data, self._overrides, remedy=remedy)

    def _overrides(self, document: dict[str, Any]) -> Overrides:
        named = document[self.field]
        found = {str(name): {str(key): str(value) for key, value in keys.items()} for name, keys in named.items()}
        return Overrides(int(document["generation"]), found)

    def read(self, fs: FileSystem, directory: str) -> Overrides:
        """What a log directory knows; generation 0 when there is no file. Raises CheckpointError, OSError."""
        try:
            return read_state(fs, f"{directory}/{self.name}", self.decode)
        except FileNotFoundError:
            return Overrides()

    def write(self, fs: FileSystem, directory: str, overrides: Overrides, *, durable: bool) -> None:
        """Put the file in place; on the device when this returns. Raises FileTooLargeError, OSError."""
        write_state(fs, f"{directory}/{self.name}", self.encode(overrides), durable=durable)


BROKERS: Final = OverridesFile(
    "brokers.json", "brokers", "the server's keys are those of its own file, its environment and its arguments"
)
"""Kafka's keys of brokers, by the number of a node, or by nothing for all of them."""
