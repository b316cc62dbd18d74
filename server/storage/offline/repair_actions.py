"""What `repair` does, as values, and the one thing it does to files that it replaces: it keeps them under another name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from ...system.clock import NowMs, system_now_ms
from ..disk.filesystem import FileSystem, replace_file
from ..recovery.salvage import Damage

KEPT_SUFFIX: Final = ".corrupt-0"


@attrs.frozen(kw_only=True)
class Action:
    """One thing that was done, or would be in a dry run."""

    kind: str
    """`complete`, `quarantine`, `restore`, `rebuild`, `set aside`, `rewrite`, `document`; `left`: cannot be repaired here."""
    file: str
    text: str
    first_offset: int | None = None
    next_offset: int | None = None


class Workshop:
    """Does what is asked, or in a dry run only tells of it. Owner: one repair."""

    def __init__(
        self, fs: FileSystem, acted: Callable[[Action], None], *, dry_run: bool, now_ms: NowMs = system_now_ms
    ) -> None:
        self.fs = fs
        self.dry_run = dry_run
        self.now_ms = now_ms
        self._acted = acted

    def tell(self, kind: str, file: str, text: str, first_offset: int | None = None, next_offset: int | None = None) -> None:
        self._acted(Action(kind=kind, file=file, text=text, first_offset=first_offset, next_offset=next_offset))

    def keep(self, path: str) -> None:
        """Rename a file out of the way; nothing when there is none. Raises OSError."""
        if self.fs.file_size(path) is None:
            return
        target = f"{path}{KEPT_SUFFIX}"
        number = 1
        while self.fs.file_size(target) is not None:
            number += 1
            target = f"{path}{KEPT_SUFFIX}.{number}"
        self.tell("set aside", path, f"kept as {target.rpartition('/')[2]}")
        if not self.dry_run:
            self.fs.rename(path, target)

    def rewrite(self, path: str, data: bytes, text: str, *, private: bool = False) -> None:
        """Put a small file in place, and keep the one that is there. `private`: only its owner may read it. Raises OSError."""
        self.keep(path)
        self.tell("rewrite", path, text)
        if not self.dry_run:
            replace_file(self.fs, path, data, private=private)


def joined(damages: Sequence[Damage]) -> list[Damage]:
    """Damages that follow each other without a good byte between them as one; those with a stamp stay by themselves."""
    result: list[Damage] = []
    for damage in damages:
        last = result[-1] if result else None
        if last is None or last.stamp is not None or damage.stamp is not None or last.position + last.size != damage.position:
            result.append(damage)
            continue
        result[-1] = Damage(
            last.position,
            last.size + damage.size,
            last.reason,
            min(last.first_offset, damage.first_offset),
            max(last.next_offset, damage.next_offset),
        )
    return result
