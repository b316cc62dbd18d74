"""All targets by name.

The inputs that the suite replays: `tests/data/fuzz/TARGET.hex` has a line for each, in hex, the shortest first.

An input that once broke an invariant has a name before it, and stays when a minimised corpus no longer needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.fuzzing import (
    bearer_tokens,
    coordinator_records,
    http_bodies,
    kafka_requests,
    native_frames,
    opened_logs,
    record_batches,
    schema_texts,
    stored_files,
)
from tests.fuzzing.target import Target

TARGETS: Final[dict[str, Target]] = {
    module.TARGET.name: module.TARGET
    for module in (
        kafka_requests,
        native_frames,
        record_batches,
        coordinator_records,
        stored_files,
        opened_logs,
        bearer_tokens,
        http_bodies,
        schema_texts,
    )
}


FOLDER: Final = Path(__file__).parent.parent / "data" / "fuzz"


def kept(target: str) -> dict[bytes, str]:
    """The inputs of a target, each with its name or ''."""
    path = FOLDER / f"{target}.hex"
    lines = path.read_text().splitlines() if path.exists() else []
    return {bytes.fromhex(data): name for name, _, data in (line.rpartition(" ") for line in lines)}


def replace(target: str, inputs: Iterable[bytes]) -> None:
    names = dict.fromkeys(inputs, "") | {data: name for data, name in kept(target).items() if name}
    lines = (f"{names[data]} {data.hex()}".strip() for data in sorted(names, key=lambda data: (len(data), data)))
    (FOLDER / f"{target}.hex").write_text("".join(f"{line}\n" for line in lines))
