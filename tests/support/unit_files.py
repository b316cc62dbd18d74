"""Units of systemd, as far as the tests read them: sections of `Key=value`, a key as often as it likes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import attrs

_SECTION: Final = re.compile(r"\[(\w+)\]")
_SETTING: Final = re.compile(r"(\w+)=(.*)")


@attrs.frozen
class UnitFile:
    """Values by section and key, in order."""

    sections: Mapping[str, Mapping[str, list[str]]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises AssertionError for a line that is none of a unit's."""
        sections: dict[str, dict[str, list[str]]] = {}
        section: dict[str, list[str]] | None = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line or line[0] in "#;":
                continue
            if found := _SECTION.fullmatch(line):
                section = sections.setdefault(found[1], {})
                continue
            setting = _SETTING.fullmatch(line)
            assert setting is not None, f"{path}:{number}: {line!r} is no setting"
            assert section is not None, f"{path}:{number}: {line!r} is in no section"
            section.setdefault(setting[1], []).append(setting[2])
        return cls(sections)

    def service(self, key: str) -> str:
        """The one value of a key of [Service]."""
        [value] = self.sections["Service"][key]
        return value

    def command(self, key: str = "ExecStart") -> list[str]:
        return shlex.split(self.service(key))
