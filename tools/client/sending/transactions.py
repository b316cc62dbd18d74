"""The state of a transactional producer (KIP-98; Kafka: TransactionManager). No sockets; both producers share it.

    begin -> send, send_offsets -> commit or abort -> begin ...

A transaction in which a record was given up can only be aborted. One whose end is unknown, because the server could not be
reached, is left behind: `init_producer` at the next beginning aborts what is open and fences what is on its way. It also
comes after a call of a transaction has failed and was made again: the first one may still be on a connection that was given
up, and under the same epoch it would end the next transaction, or bring it old offsets (KIP-890).
"""

from __future__ import annotations

from typing import Final

from ....protocol.errors import InvalidTxnStateError, RequestError
from ....protocol.native.messages import TransactionProducer
from .accumulator import Accumulator
from .delivery_verdict import FENCED_CODES
from .partition_queue import ProducerIdentity

ABORT_TIMEOUT_S: Final = 5.0
"""How long leaving a block by an exception may wait for its abort; the server aborts what is left behind."""


class TransactionState:
    """Owner: a transactional producer."""

    def __init__(self, transactional_id: str, accumulator: Accumulator) -> None:
        self._transactional_id = transactional_id
        self._accumulator = accumulator
        self._identity: ProducerIdentity | None = None
        self._is_open = False
        self._has_offsets = False
        self._commit_asked = False
        self._is_undecided = False  # the commit was asked for and not answered
        self._may_be_late = False  # a call under this epoch was given up and may still arrive

    def __repr__(self) -> str:
        return f"<TransactionState {self._transactional_id!r} {'open' if self._is_open else 'none'}>"

    @property
    def is_open(self) -> bool:
        """Return whether a transaction has begun and has not ended."""
        return self._is_open

    @property
    def has_parts(self) -> bool:
        """Return whether the server may know of the transaction: records or offsets were sent in it."""
        return self._has_offsets or self._accumulator.has_sent

    @property
    def can_abort(self) -> bool:
        """Return whether an abort makes sense: no commit was requested, which the server may have carried out."""
        return self._is_open and not self._commit_asked

    @property
    def needs_identity(self) -> bool:
        """Return whether `init_producer` has to come before the next transaction."""
        return self._identity is None or self._may_be_late or self._accumulator.identity is None

    @property
    def producer(self) -> TransactionProducer:
        """Return the transactional id, producer id and epoch for the calls."""
        assert self._identity is not None, "init_producer has no response yet"
        return TransactionProducer(self._transactional_id, *self._identity)

    def initialized(self, identity: ProducerIdentity) -> None:
        """`init_producer` was answered: nothing is open anywhere."""
        self._identity = identity
        self._may_be_late = False
        self._accumulator.set_producer(identity)

    def begin(self) -> None:
        """InvalidTxnStateError when one is open."""
        self.check_alive()
        if self._is_open:
            raise InvalidTxnStateError("a transaction is open. Commit or abort it first")
        self._accumulator.failure = None
        self._accumulator.has_sent = False
        self._is_open = True
        self._has_offsets = False
        self._commit_asked = self._is_undecided = False

    def check_sending(self) -> None:
        """Before something is sent. InvalidTxnStateError outside of a transaction; what made it fail, when it has."""
        self.check_alive()
        if not self._is_open:
            raise InvalidTxnStateError("a transactional producer sends inside a transaction. Begin one first")
        if self._accumulator.failure is not None:
            raise self._accumulator.failure.with_traceback(None)

    def add_offsets(self) -> None:
        """The server is about to hear of offsets in the transaction."""
        self._has_offsets = True

    def commit(self) -> None:
        """Everything is settled and the server will be asked to commit; raises what a record was given up for."""
        self.check_open()
        if self._accumulator.failure is not None:
            raise self._accumulator.failure.with_traceback(None)
        self._commit_asked = True
        self._is_undecided = False

    def check_open(self) -> None:
        """InvalidTxnStateError when there is none."""
        self.check_alive()
        if not self._is_open:
            raise InvalidTxnStateError("no transaction is open")

    def check_abort(self) -> None:
        """As `check_open`; and a commit that may have been made, or may still arrive, must not be followed by an abort."""
        self.check_open()
        if self._is_undecided:
            raise InvalidTxnStateError(
                f"transactional id {self._transactional_id!r}: the outcome of its commit is unknown. Commit again, or "
                "begin the next transaction"
            )

    def leave_undecided(self) -> None:
        """Before the next transaction: one whose commit was asked for and not answered is the server's to end."""
        if self._is_open and self._is_undecided:
            self.leave_behind()

    def check_alive(self) -> None:
        """Raises what ended the producer."""
        if self._accumulator.fatal is not None:
            raise self._accumulator.fatal.with_traceback(None)

    def ended(self) -> None:
        """The server has answered the commit or the abort, or there was nothing to end."""
        self._is_open = False

    def call_failed(self) -> None:
        """A call failed, and perhaps is made again: it may still arrive, so the next transaction takes another epoch."""
        self._may_be_late = True

    def end_failed(self, error: BaseException) -> None:
        """Commit or abort failed. The producer is over when it is fenced; else a retriable error leaves the end open to be
        asked for again, and any other, a cancellation too, leaves the transaction behind."""
        if isinstance(error, RequestError) and error.code in FENCED_CODES:
            self._accumulator.end(error)
            self._is_open = False
        elif isinstance(error, RequestError) and error.retriable:
            self._is_undecided = self._commit_asked
        else:
            self.leave_behind()

    def leave_behind(self) -> None:
        """Nobody will end this transaction but the server."""
        self._is_open = False
        self._identity = None
