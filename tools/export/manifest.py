"""The manifest of a job: its plan and its finished pieces, in a file from which a second run continues; and the error that
reports failed pieces.

JSON: `job`, `settings`, `files` (what the job works on, as far as that must not have changed), `plan` (the pieces, as the job
describes them), `done` (the result of every piece by its name), `is_complete`. The file is replaced as a whole after each group
of pieces. A run with other settings is refused; the plan is the first run's, whatever has been appended since, so that both
runs together do the same as one. What a finished manifest is to the next run, the job decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import attrs

from ...protocol.errors import TriologError
from ...server.config import DataPermissions
from ...server.storage.disk import filesystem

VERSION: Final = 2
MAX_SHOWN: Final = 60
"""Characters of a setting in an error."""


class ManifestError(TriologError):
    """A manifest that cannot be gone on from: of another job, other settings or files that have changed, or unreadable."""


@attrs.define(eq=False, repr=False)
class Manifest:
    """The manifest of one run. Owner: the job's driver. Without a path nothing is kept."""

    path: Path | None
    job: str
    settings: Mapping[str, Any]
    files: Mapping[str, Any] = attrs.field(factory=dict)
    plan: list[Any] | None = None
    done: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    is_complete: bool = False

    @classmethod
    def open(
        cls,
        path: Path | None,
        job: str,
        settings: Mapping[str, Any],
        *,
        files: Mapping[str, Any] | None = None,
        is_repeatable: bool = False,
    ) -> Manifest:
        """A new manifest, or the one that an earlier run has left. ManifestError, OSError.

        `is_repeatable`: a run that was finished says nothing of the next one, which begins anew.
        """
        made = cls(path, job, json.loads(json.dumps(settings)), json.loads(json.dumps(files or {})))
        if path is None or not path.exists():
            return made
        found = _read(path)
        if (found["version"], found["job"]) != (VERSION, job):
            raise ManifestError(
                f"{path} belongs to the job {found['job']} (version {found['version']}), this is {job} (version "
                f"{VERSION}). Use another manifest, or delete this one to start again"
            )
        if not (is_repeatable and found["is_complete"]):
            made._go_on_from(path, found)
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

    def forget(self, names: Iterable[str]) -> None:
        """Do these pieces again."""
        for name in names:
            del self.done[name]

    def complete(self) -> None:
        """All of it is done. OSError."""
        self.is_complete = True
        self._write()

    def _go_on_from(self, path: Path, found: Mapping[str, Any]) -> None:
        if changed := [key for key in self.settings if self.settings[key] != found["settings"].get(key)]:
            key = changed[0]
            raise ManifestError(
                f"{path} was begun with {key}={_shown(found['settings'].get(key))}, this run has "
                f"{_shown(self.settings[key])}. Use the same settings to continue, or delete the manifest to start "
                "again"
            )
        if self.files != found["files"]:
            names = sorted(self.files.keys() | found["files"].keys())
            name = next(name for name in names if self.files.get(name) != found["files"].get(name))
            raise ManifestError(f"{name} has changed since {path} was begun. Delete the manifest to start again")
        self.plan, self.done, self.is_complete = found["plan"], found["done"], found["is_complete"]

    def _write(self) -> None:
        if self.path is None:
            return
        content = {
            "version": VERSION,
            "job": self.job,
            "settings": dict(self.settings),
            "files": dict(self.files),
            "plan": self.plan,
            "done": self.done,
            "is_complete": self.is_complete,
        }
        replace_file(self.path, json.dumps(content, indent=1).encode())


def replace_file(path: Path, content: bytes) -> None:
    """The content under that name, all of it or what was there before, also after a power cut. OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    filesystem.replace_file(filesystem.OsFileSystem(DataPermissions.UMASK), str(path.absolute()), content)


def absolute(path: str) -> str:
    """Return the absolute path for settings: executors, and the next run, may have another working directory."""
    return str(Path(path).absolute())


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "version": int,
    "job": str,
    "settings": dict,
    "files": dict,
    "plan": (list, type(None)),
    "done": dict,
    "is_complete": bool,
}


def _read(path: Path) -> dict[str, Any]:
    """Read a manifest and check the type of each part; for other versions, only of the first two parts."""
    try:
        found = json.loads(path.read_text())
        names = _TYPES if found["version"] == VERSION else ("version", "job")
        wrong = [name for name in names if not isinstance(found[name], _TYPES[name])]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise ManifestError(f"{path} is not a manifest of a job ({exc!r}). Delete it to start again") from exc
    if wrong or not all(isinstance(result, dict) for result in found.get("done", {}).values()):
        what = wrong[0] if wrong else "done"
        raise ManifestError(f"{path} is not a manifest of a job ({what} is of another type). Delete it to start again")
    return found  # type: ignore[no-any-return]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


T = TypeVar("T")

Result = dict[str, Any]
"""What a piece answers; the same when it is run again."""


class JobError(TriologError):
    """Pieces that failed. What succeeded is in the manifest, if the job has one: a second run does the rest."""


@attrs.frozen
class Piece(Generic[T]):
    """A part of a job that one task does."""

    name: str
    size_bytes: int
    what: T
