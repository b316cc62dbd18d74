"""Draws the pictures of docs/cli.md as `triolog explain --svg` and `triolog du --svg` do: `python docs/pictures/draw.py`.

`walk.json` is what a server answered for a time in a partition of the demo's flights (`explain`, with all segments), `du.json`
what `triolog du --json` says of them. A test compares the files with what this module gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from triolog.protocol.types import TopicPartition
from triolog.server.offline.space import PartitionSpace, SegmentSpace, Space
from triolog.tools.pictures.space_picture import space_picture
from triolog.tools.pictures.walk_picture import walk_picture

FOLDER: Final = Path(__file__).resolve().parent
ZONE: Final = ZoneInfo("America/New_York")


def _space(found: dict[str, int]) -> Space:
    return Space(found["logical_bytes"], found["allocated_bytes"])


def _partition(found: dict[str, Any]) -> PartitionSpace:
    segments = [
        SegmentSpace(
            base_offset=each["base_offset"],
            log=_space(each["log"]),
            indexes=_space(each["indexes"]),
            largest_timestamp=each["largest_timestamp"],
        )
        for each in found["segments"]
    ]
    name = TopicPartition(found["topic"], found["partition"])
    return PartitionSpace(topic_partition=name, segments=tuple(segments), others=_space(found["others"]))


def drawn() -> dict[str, str]:
    """Every picture by the name of its file."""
    walk = json.loads((FOLDER / "walk.json").read_text(encoding="utf-8"))
    found = json.loads((FOLDER / "du.json").read_text(encoding="utf-8"))
    partitions = [_partition(each) for each in found["partitions"]]
    return {
        "walk.svg": walk_picture([("flights-1", walk)], ZONE).markup(),
        "du.svg": space_picture("flights-data", partitions, _space(found["beside_partitions"])).markup(),
    }


if __name__ == "__main__":
    for name, picture in drawn().items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
