"""What Kafka's promises mean for a history: every anomaly in it, named as Jepsen's Kafka and Elle name theirs.

| anomaly | is |
|---|---|
| lost | acknowledged, of no aborted transaction, and nowhere at the end, though nothing may have taken it (`checks.kept`) |
| came back | a log that begins before where it was trimmed to, once that was answered |
| unsent | what nobody sent, or with another timestamp |
| duplicate | one record at two offsets |
| divergent | one offset that was two records at different times |
| reordered | a producer's records in another order than it sent them |
| nonmonotonic poll | a reader that goes on before where it was, or whose records do not ascend |
| skipped | a reader that passes over a record that was there, or becomes visible later |
| aborted read (G1a) | a reader of committed records sees one of a transaction that was aborted |
| intermediate read (G1b) | it sees, or finds at the end, some records of a transaction and not the others |
| circular information flow (G1c) | transactions that have read each other's records |
| write cycle (G0) | transactions whose records stand in different orders in two partitions: Kafka allows it, it is counted |
| offset went back | a group's committed offset is not what was committed last, nor anything that may have been |
| out of sequence | an idempotent producer that kept its batches in order is told that they are not, with none lost or damaged |
| zombie | a record that a producer has sent after somebody got a higher epoch of its transactional id is acknowledged |
| passed over | what lies before a group's committed offset, and no member of it has read |
| inexact pipe | a copy of what was not committed, or of the input before the pipe's offset too few or too many |
| wrong time | an answer to offsets-for-times that no scan between the question and the answer would give |
| refused | a reader is told of damage where there is none |
| served damage | a reader is answered with bytes that are no batch |
| stuck | a reader that gets nothing more before the end of the log |
| scrub | it finds damage that nobody has done, or not the one that readers were told of |
| log directory | one that has failed is in service, or another one is not |
| not deleted | a topic that somebody finds, or writes to, after its deletion |
| verify, repair, reindex, compact | the command finds damage that nobody has done, leaves some, or fails |
| hanging | a transaction that is open after it was aborted |
| users, quotas | not what was set last, nor anything that may have been |
| remade | a topic that was created again under its name has something of the deleted one, or not what it was given |
| http | a response to a program that appends over HTTP names other offsets than those of its records, or refuses them |
| mirror | a mirror accepts a write, is promoted in part, or differs from its source (`pairs`) |

Those of members of groups and of stages: `groups.ownership`, `groups.deliveries`, `groups.stages`.

The time and the memory it takes grow with the events, not with their square; `checks` has the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tests.simulation.checks.records import check_times

from .checks.facts import Anomaly, Facts
from .checks.groups import check_coverage, check_group_offsets, check_pipes
from .checks.kept import check_kept, check_refusals, check_witnesses
from .checks.records import check_offsets, check_polls, check_sequences, check_stored
from .checks.topic_lives import check_topic_lives
from .checks.transactions import check_flows, check_transactions, check_zombies, write_cycles
from .history import Event

CHECKS: Final[tuple[Callable[[Sequence[Event], Facts], Iterator[Anomaly]], ...]] = (
    check_offsets,
    check_sequences,
    check_polls,
    check_stored,
    check_kept,
    check_refusals,
    check_transactions,
    check_flows,
    check_group_offsets,
    check_coverage,
    check_zombies,
    check_pipes,
    check_times,
    check_topic_lives,
    check_witnesses,
)


def check(events: Iterable[Event]) -> list[Anomaly]:
    """Every anomaly; none: every promise was kept."""
    events = list(events)
    facts = Facts.of(events)
    return [anomaly for part in CHECKS for anomaly in part(events, facts)]


__all__ = ["Anomaly", "check", "write_cycles"]
