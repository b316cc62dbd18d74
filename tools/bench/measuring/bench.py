"""The context of a row: its directory, its scale and its output; and the interleaving of compared measurements."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

import attrs


@attrs.frozen
class Scale:
    """`rounds`: how often each measure is taken, beside one that is not counted. `share`: of the full counts and times."""

    name: str
    rounds: int
    share: float

    def count(self, full: int, least: int = 1) -> int:
        """Return this scale's share of a full count."""
        return max(least, round(full * self.share))

    def seconds(self, full: float, least: float = 0.05) -> float:
        """Return this scale's share of a full time."""
        return max(least, full * self.share)


FULL: Final = Scale("full", 5, 1.0)
QUICK: Final = Scale("quick", 3, 0.1)


Sample = TypeVar("Sample")


@attrs.frozen
class Bench:
    """A run of the benchmark."""

    directory: str
    """Holds all temporary files; the file system below it is the one that is measured."""
    scale: Scale
    say: Callable[[str], None]
    with_peers: bool = True

    @contextmanager
    def workspace(self) -> Iterator[str]:
        """Create a directory for the time of the block."""
        with tempfile.TemporaryDirectory(prefix="row-", dir=self.directory) as path:
            yield path

    def with_rounds(self, most: int) -> Bench:
        """Return this run with at most `most` rounds, for rows that take long."""
        return attrs.evolve(self, scale=attrs.evolve(self.scale, rounds=min(most, self.scale.rounds)))

    def interleave(self, measures: Mapping[str, Callable[[], Sample]]) -> dict[str, list[Sample]]:
        """Return samples of each measure: one round that is not counted, then rounds of one sample each, A B A B.

        Every other round goes backwards, so that none is always the one that comes first.
        """
        samples: dict[str, list[Sample]] = {name: [] for name in measures}
        for number in range(-1, self.scale.rounds):
            order = list(measures) if number % 2 else list(measures)[::-1]
            for name in order:
                self.say(f"{name}, {'warm-up' if number < 0 else f'round {number + 1} of {self.scale.rounds}'}")
                sample = measures[name]()
                if number >= 0:
                    samples[name].append(sample)
        return samples
