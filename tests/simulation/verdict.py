"""What became of a world: its anomalies, or why it ended early."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable

import attrs

from tests.simulation.checker import Anomaly, check, write_cycles
from tests.simulation.groups.deliveries import deliveries
from tests.simulation.groups.ownership import mixed_offsets, offsets, ownership, processed
from tests.simulation.groups.stages import stages
from tests.simulation.history import Event, History, Lost
from tests.simulation.script import Script
from tests.simulation.short_lives import world_of
from tests.simulation.world import simulate


@attrs.frozen(kw_only=True)
class Verdict:
    seed: str
    anomalies: tuple[Anomaly, ...]
    error: str = ""
    """What the server, a client or the world itself ended with."""
    digest: str = ""
    events: int = 0
    write_cycles: int = 0
    simulated_s: float = 0.0
    took_s: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.anomalies and not self.error

    @property
    def kinds(self) -> frozenset[str]:
        """What went wrong, in words of which a smaller world has to have one."""
        return frozenset(anomaly.kind for anomaly in self.anomalies) | ({self.error.partition(":")[0]} if self.error else set())

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {len(self.anomalies)} anomalies{', and ' if self.error else ''}{self.error}"]
        return "\n".join([*lines, *(f"  {kind}: {detail}" for kind, detail in self.anomalies[:20])])


def judge(script: Script, history: History | None = None, run: Callable[[Script, History], History] = simulate) -> Verdict:
    """Simulate a world and check its history, which begins empty. What the server logs meanwhile is not shown."""
    began_s = time.process_time()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    history, error = History() if history is None else history, ""
    try:
        run(script, history)
    except Exception as exc:
        error = _words(exc)
    finally:
        logging.disable(before)
    return Verdict(
        seed=script.seed,
        anomalies=() if error else (*check(history.events), *check_groups(history.events)),
        error=error,
        digest=history.digest(),
        events=len(history.events),
        write_cycles=write_cycles(history.events),
        simulated_s=history.events[-1].at_ms / 1000 if history.events else 0.0,
        took_s=time.process_time() - began_s,
    )


def judge_seed(seed: str) -> Verdict:
    """The world of a seed."""
    return attrs.evolve(judge(world_of(seed)), seed=seed)


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def check_groups(events: Iterable[Event]) -> list[Anomaly]:
    """None: every promise was kept. Ownership is judged up to the first loss, the rest only where nothing is lost."""
    events = list(events)
    whole = list(itertools.takewhile(lambda event: not isinstance(event, Lost), events))
    found = [anomaly for part in (ownership, processed) for anomaly in part(whole)]
    if len(whole) == len(events):
        found += [anomaly for part in (offsets, mixed_offsets, deliveries, stages) for anomaly in part(events)]
    return found
