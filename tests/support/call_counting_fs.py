"""The real file system, which counts what it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem

CALLS: Final = frozenset(name for name, member in vars(FileSystem).items() if callable(member) and not name.startswith("_"))


class CallCountingFileSystem(OsFileSystem):
    """Counts calls by name, and new files as `made`. What a call does by way of others counts, too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        return partial(self._call, name, member) if name in CALLS else member

    def _call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        self.calls[name] += 1
        if name == "open" and str(args[0]).endswith(".tmp"):
            self.calls["made"] += 1
        return function(*args)
