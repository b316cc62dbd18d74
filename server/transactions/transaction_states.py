"""The transitions of a transactional id, as a table, and each step as a pure function (Kafka: TransactionState,
TransactionMetadata, TransactionCoordinator; KIP-98, KIP-360, KIP-890).

| from | to | when |
|---|---|---|
| - , Empty, Complete* | Empty | a producer starts with the id: its epoch goes up |
| Empty, Complete* | Ongoing | the first partition joins |
| Ongoing | Ongoing | another partition joins |
| Ongoing | PrepareCommit, PrepareAbort | the outcome is decided: from here on it cannot change |
| PrepareCommit | CompleteCommit | every partition has its marker |
| PrepareAbort | CompleteAbort | every partition has its marker |
| Empty, Complete* | PrepareAbort | a client of transaction version 2 aborts a transaction that nothing has joined |
| Empty, Complete* | Dead | the id was not used for too long |

An id that is new has no state. A producer that starts while a transaction is Ongoing aborts it first. With transaction version
2 the outcome raises the epoch: the markers are written under it, and the producer continues with it. Once the epochs of a
producer id are used up, the producer continues with epoch 0 of the next id. A timeout does the same: the producer learns its
next epoch when it ends the transaction, or when it starts again under its own id and epoch. A new instance of the producer
fences the old one instead.

`is_epoch_before` recognizes the id and epoch that a producer had one step ago, as a pair. The pair counts until the producer
uses its current epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from ...protocol.coordinator.transactions import TransactionLogValue, TransactionState
from ...protocol.errors import ErrorCode, InvalidTxnStateError, RequestError
from ...protocol.limits import INT16_MAX
from ...protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

_EMPTY, _ONGOING, _DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
_PREPARED: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETED: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}

PREPARED_STATES: Final = frozenset(_PREPARED.values())
IDLE_STATES: Final = frozenset({_EMPTY, *_COMPLETED.values()})
"""No transaction is open or on its way to its end."""

TRANSITIONS: Final = {
    None: frozenset({_EMPTY}),
    _EMPTY: frozenset({_EMPTY, _ONGOING, _DEAD, TransactionState.PREPARE_ABORT}),
    _ONGOING: frozenset({_ONGOING, *PREPARED_STATES}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset({_EMPTY, _ONGOING, _DEAD, TransactionState.PREPARE_ABORT}),
    TransactionState.COMPLETE_ABORT: frozenset({_EMPTY, _ONGOING, _DEAD, TransactionState.PREPARE_ABORT}),
    _DEAD: frozenset(),
}
"""Every legal step. None: the id is not known."""

EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version of clients whose epoch goes up with every transaction (KIP-890)."""
LAST_CLIENT_EPOCH: Final = INT16_MAX - 1
"""The largest epoch that a producer gets. The one above it is left for the abort that fences its last holder off."""


def check_transition(before: TransactionLogValue | None, after: TransactionState) -> None:
    """Our own steps are legal, else this is a bug."""
    state = None if before is None else before.state
    assert after in TRANSITIONS[state], f"a transaction cannot go from {state!r} to {after!r}"


def started(
    value: TransactionLogValue | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None,
    by_holder: bool = False,
) -> TransactionLogValue:
    """A producer starts with the id: the next epoch, or the first one of `new_producer_id`, which is needed when the id is new
    or has no next epoch (`ProducerIds.has_next_epoch`). `by_holder`: the request names the current id and epoch, so it may
    come again."""
    check_transition(value, _EMPTY)
    last_epoch = value.producer_epoch if by_holder and value is not None else NO_PRODUCER_EPOCH
    if new_producer_id is not None:
        return TransactionLogValue(
            producer_id=new_producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=value.producer_id if by_holder and value is not None else NO_PRODUCER_ID,
            last_producer_epoch=last_epoch,
        )
    assert value is not None
    assert not is_epoch_exhausted(value)
    return TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch + 1,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
        last_producer_epoch=last_epoch,
    )


def started_again(value: TransactionLogValue, last_epoch: int, *, timeout_ms: int, now_ms: int) -> TransactionLogValue:
    """A producer that had `last_epoch` before does not know the current epoch: it starts with that."""
    check_transition(value, _EMPTY)
    return TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
        previous_producer_id=value.previous_producer_id,
        last_producer_epoch=last_epoch,
    )


def is_epoch_exhausted(value: TransactionLogValue) -> bool:
    """Return whether the producer id has no epoch left."""
    return value.producer_epoch >= LAST_CLIENT_EPOCH


def joined(value: TransactionLogValue, partitions: Iterable[TopicPartition], *, now_ms: int) -> TransactionLogValue:
    """Partitions join the transaction, which begins with the first of them. The producer knows its epoch, as this shows."""
    check_transition(value, _ONGOING)
    is_open = value.state is _ONGOING
    return attrs.evolve(
        value,
        state=_ONGOING,
        partitions=(value.partitions if is_open else frozenset()).union(partitions),
        start_ms=value.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        previous_producer_id=NO_PRODUCER_ID,
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )


def prepared(
    value: TransactionLogValue,
    *,
    commit: bool,
    now_ms: int,
    fence: bool = False,
    client_version: int = 0,
    new_producer_id: int = NO_PRODUCER_ID,
) -> TransactionLogValue:
    """The outcome is decided. `fence`: a new instance of the producer aborts, so the epoch is not good any more and the old
    instance gets no other. With EPOCH_PER_TRANSACTION the producer gets the next epoch, or `new_producer_id`, which is needed
    where there is no next epoch (`ProducerIds.has_next_epoch`)."""
    check_transition(value, _PREPARED[commit])
    raised = value.producer_epoch + (fence or client_version >= EPOCH_PER_TRANSACTION)
    epoch = min(raised, INT16_MAX)  # older servers stored open transactions at the epoch that fences
    is_open = value.state is _ONGOING
    return attrs.evolve(
        value,
        state=_PREPARED[commit],
        producer_epoch=epoch,
        partitions=value.partitions if is_open else frozenset(),
        start_ms=value.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=new_producer_id,
        last_producer_epoch=NO_PRODUCER_EPOCH if new_producer_id == NO_PRODUCER_ID else value.producer_epoch,
    )


def completed(value: TransactionLogValue, *, now_ms: int) -> TransactionLogValue:
    """Every partition has its marker."""
    state = _COMPLETED[is_commit(value)]
    check_transition(value, state)
    after = attrs.evolve(value, state=state, partitions=frozenset(), last_update_ms=now_ms)
    if value.next_producer_id == NO_PRODUCER_ID:
        return after
    return attrs.evolve(
        after,
        producer_id=value.next_producer_id,
        producer_epoch=0,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def is_commit(value: TransactionLogValue) -> bool:
    """The outcome of a prepared transaction."""
    assert value.state in PREPARED_STATES
    return value.state is TransactionState.PREPARE_COMMIT


def needs_end(transactional_id: str, value: TransactionLogValue, *, commit: bool) -> bool:
    """Return whether the transaction still needs steps to end this way. False: it has ended this way, or it was empty.

    Raises InvalidTxnStateError when it has ended the other way, or is about to.
    """
    if value.state is _ONGOING or value.state is _PREPARED[commit]:
        return True
    if value.state is _EMPTY or value.state is _COMPLETED[commit]:
        return False
    raise _cannot_end(transactional_id, value, commit=commit)


def _cannot_end(transactional_id: str, value: TransactionLogValue, *, commit: bool) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"transactional id {transactional_id!r} cannot {'commit' if commit else 'abort'}: its transaction is "
        f"{value.state.name}, and nothing was produced since"
    )


def needs_end_with_next_epoch(
    transactional_id: str, value: TransactionLogValue, producer_id: int, producer_epoch: int, *, commit: bool
) -> bool:
    """`needs_end` for clients of EPOCH_PER_TRANSACTION, whose epoch tells a call that is made again from the next one. To abort
    what nothing has joined is a transaction of its own.

    Raises RequestError: INVALID_TXN_STATE as `needs_end` does, PRODUCER_FENCED for another epoch.
    """
    if has_ended_with(value, producer_id, producer_epoch) and value.state not in (_ONGOING, _EMPTY):
        if value.state in (_PREPARED[commit], _COMPLETED[commit]):
            return value.state is _PREPARED[commit]
    else:
        check_producer(transactional_id, value, producer_id, producer_epoch)
        if value.state is _ONGOING or (not commit and value.state in IDLE_STATES):
            return True
    raise _cannot_end(transactional_id, value, commit=commit)


def has_ended_with(value: TransactionLogValue, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the producer had this id and epoch before the last transaction that ended. Always False
    before client version EPOCH_PER_TRANSACTION."""
    if value.client_version < EPOCH_PER_TRANSACTION:
        return False
    if value.producer_id == producer_id:
        return value.producer_epoch == producer_epoch + 1
    # Kafka and older servers change the id after the last epoch only, and do not store which it was.
    last_epoch = LAST_CLIENT_EPOCH if value.last_producer_epoch == NO_PRODUCER_EPOCH else value.last_producer_epoch
    return (value.previous_producer_id, last_epoch, 0) == (producer_id, producer_epoch, value.producer_epoch)


def is_epoch_before(value: TransactionLogValue, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the producer had this id and epoch one step ago, and may not know the current ones (KIP-360)."""
    if value.state is _ONGOING or producer_epoch == NO_PRODUCER_EPOCH:
        return False
    if value.state is not _EMPTY:
        return has_ended_with(value, producer_id, producer_epoch)
    is_rotated = value.previous_producer_id != NO_PRODUCER_ID
    last_id = value.previous_producer_id if is_rotated else value.producer_id
    return (producer_id, producer_epoch) == (last_id, value.last_producer_epoch)


def next_epoch_error(value: TransactionLogValue, expected: tuple[int, int]) -> str:
    """Why a producer that names its (id, epoch) cannot get the next epoch (KIP-360); empty when it can."""
    producer_id, epoch = expected
    if expected == (value.producer_id, value.producer_epoch) and epoch <= LAST_CLIENT_EPOCH:
        return ""
    if is_epoch_before(value, *expected):
        return ""
    return f"it has producer id {value.producer_id} and epoch {value.producer_epoch}, not {producer_id} and {epoch}"


def check_producer(
    transactional_id: str, value: TransactionLogValue | None, producer_id: int, producer_epoch: int
) -> TransactionLogValue:
    """Return the state if it belongs to the caller. Raises RequestError.

    No producer has an epoch above LAST_CLIENT_EPOCH: that epoch fences the last holder. A client that names it has guessed.
    """
    known_ids = () if value is None else (value.producer_id, value.previous_producer_id)
    if value is None or producer_id == NO_PRODUCER_ID or producer_id not in known_ids:
        known = "it is not known here" if value is None else f"it belongs to producer id {value.producer_id}"
        raise RequestError(
            f"transactional id {transactional_id!r} does not belong to producer id {producer_id}: {known}. Start "
            "the producer again",
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
    is_current = (producer_id, producer_epoch) == (value.producer_id, value.producer_epoch)
    if not is_current or producer_epoch > LAST_CLIENT_EPOCH:
        raise RequestError(
            f"producer {producer_id} of transactional id {transactional_id!r} has epoch {producer_epoch}, the current one is "
            f"{value.producer_epoch}: a newer instance has started, or the transaction took longer than its timeout of "
            f"{value.timeout_ms} ms",
            ErrorCode.PRODUCER_FENCED,
        )
    return value


def check_abortable(transactional_id: str, value: TransactionLogValue | None) -> None:
    """Raises RequestError unless the id has a transaction open, or one that is being aborted."""
    if value is None:
        raise RequestError(f"transactional id {transactional_id!r} is not known", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    if value.state not in (_ONGOING, TransactionState.PREPARE_ABORT):
        raise InvalidTxnStateError(f"transactional id {transactional_id!r} has nothing to abort: it is {value.state.name}")


def concurrent_error(transactional_id: str) -> RequestError:
    """Something else is being done with the id: try again."""
    return RequestError(
        f"transactional id {transactional_id!r} is ending or starting. Try again",
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
