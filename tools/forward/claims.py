"""Which link of this process sends to which topic upstream: two would mix up its order and their offsets."""

from __future__ import annotations

import threading


class Claims:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[str, str], tuple[str, str]] = {}

    def claim(self, to: str, target: str, link: str, topic: str) -> str | None:
        """Take a topic upstream for a link's topic; answers who has it, if that is somebody else."""
        with self._lock:
            owner = self._owners.setdefault((to, target), (link, topic))
            return None if owner == (link, topic) else f"topic {owner[1]} of link {owner[0]}"

    def release(self, link: str) -> None:
        """It sends nothing more."""
        with self._lock:
            for target in [target for target, owner in self._owners.items() if owner[0] == link]:
                del self._owners[target]
