"""What drivers have staged and committed.

| anomaly | is |
|---|---|
| inexact stage | a version whose records are there in part, twice, or not at all although it is committed; or before it is |
| last commit went back | the version that was committed last is below one that was known to be committed |

Where somebody has damaged something of what was committed, that may be missing. What a crash has torn out of a commit comes
behind the rest of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

import attrs
from triolog.protocol.types import TopicPartition

from ..checker import Anomaly
from ..history import Damaged, Event, Stored, Torn
from .events import CommitsStage, LastCommit, StageCommitted, Staged


@attrs.define(eq=False)
class _Version:
    """What is known of one version of an application."""

    staged: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    """Ids by attempt."""
    named: dict[str, dict[TopicPartition, tuple[str, ...]]] = attrs.field(factory=dict)
    """Of attempts that were to be committed."""
    mine: set[str] = attrs.field(factory=set)
    """Attempts that were told that they are the committed one."""
    places: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)
    is_committed: bool = False

    def gone(self, attempt: str, damaged: Mapping[TopicPartition, Sequence[range]]) -> set[str]:
        """What may be missing of an attempt."""
        return {
            record
            for where, ids in self.named.get(attempt, {}).items()
            if any(_meet(damage, self.places.get(where)) for damage in damaged.get(where, ()))
            for record in ids
        }


def _meet(damage: range, place: tuple[int, int] | None) -> bool:
    return place is None or (damage.start < place[1] and place[0] < damage.stop)


def stages(events: Sequence[Event]) -> Iterator[Anomaly]:
    versions: dict[int, _Version] = defaultdict(_Version)
    known: list[tuple[int, int]] = []
    damaged: dict[TopicPartition, list[range]] = defaultdict(list)
    torn: set[TopicPartition] = set()
    for event in events:
        match event:
            case Damaged():
                damaged[event.partition].append(event.offsets)
            case Torn():
                torn.add(event.partition)
            case Staged():
                versions[event.version].staged[event.attempt].update(event.ids)
            case CommitsStage():
                versions[event.version].named[event.attempt] = dict(event.ids)
            case StageCommitted():
                version = versions[event.version]
                version.is_committed = True
                version.places.update((where, (base, end)) for where, base, end in event.places)
                if event.is_mine:
                    version.mine.add(event.attempt)
                known.append((event.at_ms, event.version))
            case LastCommit():
                newest = max((number for at_ms, number in known if at_ms < event.begun_ms), default=-1)
                if event.version < newest:
                    yield Anomaly("last commit went back", f"{event.who} was told {event.version}, committed was {newest}")
                known.append((event.at_ms, event.version))
    if not versions:
        return
    last = max((number for _, number in known), default=-1)
    there = {
        record.id: (event.partition, record.offset)
        for event in events
        if isinstance(event, Stored) and not event.is_committed
        for record in event.records
    }
    for number, version in sorted(versions.items()):
        for what in _wrong(version, there, damaged, torn, is_committed=version.is_committed or number <= last):
            yield Anomaly("inexact stage", f"version {number}: {what}")


def _wrong(
    version: _Version,
    there: Mapping[str, tuple[TopicPartition, int]],
    damaged: Mapping[TopicPartition, Sequence[range]],
    torn: Set[TopicPartition],
    *,
    is_committed: bool,
) -> Iterator[str]:
    whole, may_be_gone = [], False
    for attempt, staged in version.staged.items():
        named = version.named.get(attempt, {})
        of_attempt = {record for ids in named.values() for record in ids}
        found = {record for record in staged if record in there}
        gone = version.gone(attempt, damaged)
        is_gone = bool(gone) and gone >= of_attempt
        may_be_gone |= is_gone
        if found - of_attempt:
            yield f"of {attempt} are there {sorted(found - of_attempt)}, which nobody has committed"
        if found and of_attempt - found - gone:
            yield f"of {attempt} are missing {sorted(of_attempt - found - gone)}"
        elif found or (is_gone and attempt in version.mine):
            whole.append(attempt)
            yield from _misplaced(version, named, there, torn)
    if len(whole) > 1:
        yield f"it is there as {' and as '.join(whole)} have staged it"
    if is_committed and not whole and version.named and not may_be_gone:
        yield "it is committed, and nothing of it is there"
    if not is_committed and whole:
        yield f"it is there as {whole[0]} has staged it, and not committed"
    if version.mine - set(whole):
        yield f"{', '.join(sorted(version.mine))} was told that it is committed, there are {whole or 'none'}"


def _misplaced(
    version: _Version,
    named: dict[TopicPartition, tuple[str, ...]],
    there: Mapping[str, tuple[TopicPartition, int]],
    torn: Set[TopicPartition],
) -> Iterator[str]:
    for where, ids in named.items():
        offsets = [there[record][1] for record in ids if record in there]
        if not offsets:
            continue
        if offsets != sorted(offsets) and where not in torn:
            yield f"its records at {where} are in another order, at {offsets}"
        base, end = version.places.get(where, (min(offsets), max(offsets) + 1))
        if not base <= min(offsets) <= max(offsets) < end:
            yield f"its records at {where} are at {offsets}, not between {base} and {end}"
