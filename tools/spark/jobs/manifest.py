"""What a job has planned and done, in a file that a second run goes on from.

JSON: `job`, `settings`, `plan` (the pieces, as the job describes them), `done` (the result of every piece by its name),
`is_complete`. The file is replaced as a whole after each group of pieces. A run with other settings is refused; the plan is
the first run's, whatever has been appended since, so that both runs together do the same as one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ....protocol.errors import TriologError

VERSION: Final = 1


class ManifestError(TriologError):
    """A manifest that cannot be gone on from: of another job, with other settings, or unreadable."""


@attrs.define(eq=False)
class Manifest:
    """The manifest of one run. Owner: the job's driver. Without a path nothing is kept."""

    path: Path | None
    job: str
    settings: Mapping[str, Any]
    plan: list[Any] | None = None
    done: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    is_complete: bool = False

    @classmethod
    def open(cls, path: Path | None, job: str, settings: Mapping[str, Any]) -> Manifest:
        """A new manifest, or the one that an earlier run has left. ManifestError, OSError."""
        made = cls(path, job, json.loads(json.dumps(settings)))
        if path is None or not path.exists():
            return made
        try:
            found = json.loads(path.read_text())
            version, found_job, found_settings, done = (found[key] for key in ("version", "job", "settings", "done"))
            made.plan, made.is_complete = found["plan"], bool(found["is_complete"])
        except (ValueError, KeyError, TypeError) as exc:
            raise ManifestError(f"{path} is no manifest of a job ({exc!r}); delete it to begin anew") from exc
        if (version, found_job) != (VERSION, job):
            raise ManifestError(f"{path} is of the job {found_job} (version {version}), this is {job} (version {VERSION})")
        if changed := [key for key in made.settings if made.settings[key] != found_settings.get(key)]:
            key = changed[0]
            raise ManifestError(
                f"{path} was begun with {key}={found_settings.get(key)!r}, this run has {made.settings[key]!r}; "
                "use the same settings to go on, or delete the manifest to begin anew"
            )
        made.done = dict(done)
        return made

    def planned(self, plan: Callable[[], list[Any]]) -> list[Any]:
        """The plan: the first run's, or else that which is made now, as JSON makes it. OSError."""
        if self.plan is None:
            self.plan = json.loads(json.dumps(plan()))
            self._write()
        return self.plan

    def add(self, results: Mapping[str, dict[str, Any]]) -> None:
        """Take in what was done. OSError."""
        self.done.update(results)
        self._write()

    def complete(self) -> None:
        """All of it is done. OSError."""
        self.is_complete = True
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        content = {
            "version": VERSION,
            "job": self.job,
            "settings": dict(self.settings),
            "plan": self.plan,
            "done": self.done,
            "is_complete": self.is_complete,
        }
        replace_file(self.path, json.dumps(content, indent=1).encode())


def replace_file(path: Path, content: bytes) -> None:
    """The content under that name, all of it or what was there before. OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
