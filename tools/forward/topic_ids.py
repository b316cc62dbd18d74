"""Ids of the source's topics that a link has forwarded: a topic that was deleted and created again has another one.

Deleting a topic also deletes the offsets that a link committed for it in the source, and with them the only trace of that
topic. So the link's own directory keeps the ids, in a JSON object from name to id. Without a directory the ids live as long as
the process.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

LOGGER: Final = logging.getLogger(__name__)
MAX_FILE_BYTES: Final = 16 * 1024 * 1024


@attrs.define(eq=False, repr=False)
class TopicIds:
    """Owner: the link's thread."""

    path: Path | None = None
    _ids: dict[str, str] | None = None

    def known(self, topic: str) -> str | None:
        """The id of the topic of that name that was forwarded; None where none was, as far as is known."""
        return self._read().get(topic)

    def note(self, ids: Mapping[str, str]) -> None:
        """These are forwarded. What cannot be written is logged, and known until the process ends."""
        known = self._read()
        if all(known.get(name) == topic_id for name, topic_id in ids.items()):
            return
        known.update(ids)
        if self.path is None:
            return
        temporary = self.path.with_suffix(".tmp")
        try:
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as stream:
                json.dump(known, stream)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self.path)
        except OSError as exc:
            LOGGER.error(
                "cannot write %s: %s. A topic that is created again while this link is down is not noticed.", self.path, exc
            )

    def _read(self) -> dict[str, str]:
        if self._ids is None:
            self._ids = {} if self.path is None else _ids_in(self.path)
        return self._ids


def _ids_in(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as stream:
            found = json.loads(stream.read(MAX_FILE_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        LOGGER.error("%s cannot be read, it begins again with the topics that there are: %s", path, exc)
        return {}
    return {name: topic_id for name, topic_id in found.items() if isinstance(topic_id, str)} if isinstance(found, dict) else {}
