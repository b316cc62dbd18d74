"""The quota of changes of topics: partitions that a client makes and deletes (KIP-599; Kafka: ControllerMutationQuotaManager,
StrictControllerMutationQuota, PermissiveControllerMutationQuota).

A client that understands the error is refused while it owes; one that does not gets what it wants, and has to be quiet.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs

from .token_bucket import TokenBucket

MAX_BUCKETS: Final = 10_000
"""Users and clients whose use is remembered; beyond it who has changed nothing for longest is forgotten, and begins anew."""

Sharer = tuple[str | None, str | None]
"""The user and the client id that a bucket is of; None: whoever it is."""


class Mutation(NamedTuple):
    """What became of a change."""

    is_allowed: bool = True
    throttle_s: float = 0.0


ALLOWED: Final = Mutation()


@attrs.define(eq=False, repr=False)
class MutationBuckets:
    """What clients have left. Owner: `ClientQuotas`."""

    _buckets: dict[Sharer, TokenBucket] = attrs.field(factory=dict)

    def use(self, sharer: Sharer, partitions: int, bound: float, now_s: float, *, is_strict: bool) -> Mutation:
        """So many partitions are to be made or deleted."""
        bucket = self._buckets.get(sharer)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._make_room()
            bucket = self._buckets[sharer] = TokenBucket.full(bound, now_s)
        if is_strict:
            if missing_s := bucket.missing_s(bound, now_s):
                return Mutation(False, round(missing_s, 3))
            bucket.take(partitions, bound, now_s)
            return ALLOWED
        bucket.take(partitions, bound, now_s)
        return Mutation(True, round(bucket.missing_s(bound, now_s), 3))

    def _make_room(self) -> None:
        recent = sorted(self._buckets, key=lambda sharer: self._buckets[sharer].last_s)[-(MAX_BUCKETS // 2) :]
        self._buckets = {sharer: self._buckets[sharer] for sharer in recent}
