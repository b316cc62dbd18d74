"""Memory that requests hold, as accounts: the broker's, in it each principal's, in that each connection's share.

A connection's first FREE_BYTES are counted and never waited for, so that small requests go on whatever others send. What is
above is charged as it arrives, from the first byte of a frame, to its principal (of who has not said who he is: to his host)
and to the broker; who cannot be charged is not read from. A principal has half of the limit, a connection with requests
under way a quarter, and the last quarter of an account is for who holds little.

Nobody waits for ever: when an account is full, the one who has waited longest goes on with the frame that it has begun, outside
the account and one at a time; and a frame that stands still while others wait for its memory is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import trio

from ....protocol.limits import KIB, MIB

FREE_BYTES: Final = 64 * KIB
"""What a connection may hold without being charged: with `max_connections` of 1,000 at most 64 MiB."""
SMALL_BYTES: Final = MIB
"""Who holds no more has the whole of an account, others three quarters of it: a batch of the largest default size fits."""
STALL_S: Final = 2.0
"""A frame that gains less than PROGRESS_BYTES in so long is given up, when others wait."""
PROGRESS_BYTES: Final = 64 * KIB
SHARE_OF_PRINCIPAL: Final = 2
SHARE_OF_CONNECTION: Final = 4


def _unknown() -> str:
    return "-"


def _nothing() -> int:
    return 0


def _ignore(why: str) -> None:
    """Nobody is there to be ended."""


@attrs.define(eq=False, repr=False)
class Share:
    """Memory of one connection's requests. Owner: its session, which adds received bytes to `held` and calls `charge` past
    FREE_BYTES."""

    budget: InFlightBudget
    held: int = 0
    """Bytes of frames that are not whole yet, and of requests without an answer."""
    charged: int = 0
    accounts: tuple[Account, ...] = ()
    """Where it is charged, or waits to be: its owner calls `give_back` then, when `held` has become less."""
    is_receiving: bool = False
    """Whether it is the peer's turn."""
    is_whole: bool = False
    """Whether a frame was completed since it goes on outside an account."""
    payer: Callable[[], str] = _unknown
    """Who pays, asked when there is something to pay."""
    unread_bytes: Callable[[], int] = _nothing
    """How much of `held` belongs to frames that are not taken up."""
    give_up: Callable[[str], None] = _ignore
    """Ends the connection, and says why."""
    _woken: trio.Event | None = None
    _answered: trio.Event | None = None
    _gained: int = 0
    _gained_at: float = 0.0
    _is_closed: bool = False

    def try_charge(self) -> bool:
        """Have what was received counted, if that takes no waiting; otherwise nothing happens, and `charge` is to be called."""
        return self.held <= self.budget.most_per_connection and self._try() is None

    async def charge(self) -> None:
        """Have what was received counted; returns when it is, or the connection is closed."""
        while self.charged and self.held > max(self.budget.most_per_connection, self.unread_bytes()):
            self._answered = trio.Event()
            await self._answered.wait()
            self._answered = None
        while (full := self._try()) is not None:
            await self._wait(full)
        if self.accounts and not self.charged:  # answers came while it waited, and there is nothing to pay any more
            self._leave_accounts()

    def _try(self) -> Account | None:
        """Charge what is not charged yet; answers the account that has no room for it."""
        size = self.held - FREE_BYTES - self.charged
        if size <= 0 or self._is_closed:
            return None
        if not self.accounts:
            self.accounts = self.budget.accounts_of(self.payer())
            self._gained_at = trio.current_time()
        is_small = self.charged + size <= SMALL_BYTES
        for account in self._deciding():
            if not account.has_room(self, size, is_small=is_small):
                return account
        for account in self.accounts:
            account.add(self, size)
        self.charged += size
        self._gained += size
        if self._gained >= PROGRESS_BYTES:
            self._gained, self._gained_at = 0, trio.current_time()
        return None

    def _deciding(self) -> tuple[Account, ...]:
        """Return the accounts that must have capacity. A share admitted over the broker's limit does not wait for its
        principal's account. That avoids a deadlock: the share admitted over the principal's limit may itself wait for the
        broker."""
        *_, broker = self.accounts
        return (broker,) if broker.ahead is self else self.accounts

    async def _wait(self, account: Account) -> None:
        woken = self._woken = trio.Event()
        is_small = self.held - FREE_BYTES <= SMALL_BYTES
        account.queue(self, is_small=is_small)
        try:
            while not woken.is_set():
                with trio.move_on_after(self.budget.stall_s) as patience:
                    await woken.wait()
                if patience.cancelled_caught:
                    account.end_what_stands_still(trio.current_time(), self.budget.stall_s)
        finally:
            self._woken = None
            account.leave_queue(self, is_small=is_small)
            self._gained_at = trio.current_time()

    def wake(self) -> None:
        """Let a waiting `charge` look again."""
        if self._woken is not None:
            self._woken.set()

    def stands_still_since(self, moment: float) -> bool:
        """Return whether the peer owes the rest of a frame and has sent little of it since `moment`."""
        return self.is_receiving and self._gained_at <= moment and self.unread_bytes() > 0

    @property
    def is_answered(self) -> bool:
        """Return whether the frame admitted over the limit, and all frames before it, have their responses."""
        return self.is_whole and self.held <= self.unread_bytes()

    def give_back(self) -> None:
        """`held` has become less: pay for what is left."""
        if self._answered is not None:
            self._answered.set()
        back = max(0, self.charged - max(0, self.held - FREE_BYTES))
        self.charged -= back
        accounts = self.accounts
        if not self.charged:
            self.accounts = ()
        for account in accounts:
            account.take_out(self, back)
        self.budget.forget_empty(accounts)
        if self._woken is not None and self._try() is None:
            self._woken.set()

    def _leave_accounts(self) -> None:
        accounts, self.accounts = self.accounts, ()
        back, self.charged = self.charged, 0
        for account in accounts:
            account.take_out(self, back)
        self.budget.forget_empty(accounts)

    def close(self) -> None:
        """The connection is gone, and so is what it held."""
        self._is_closed = True
        self.held = 0
        self._leave_accounts()
        for event in (self._woken, self._answered):
            if event is not None:
                event.set()
        self.budget.shares.pop(self, None)
        self.payer, self.unread_bytes, self.give_up = _unknown, _nothing, _ignore


@attrs.define(eq=False, repr=False)
class Account:
    """A limit, who is charged under it, and who waits for room. Owner: the budget."""

    name: str
    limit: int
    used: int = 0
    """Without what `ahead` is charged."""
    ahead: Share | None = None
    """Goes on outside the account until its next request is answered, so that a full account empties again."""
    charged: dict[Share, None] = attrs.field(factory=dict)
    _waiting: tuple[dict[Share, None], dict[Share, None]] = attrs.field(factory=lambda: ({}, {}))
    """Who holds much, and who holds little, in the order they came."""
    _looked_at: float = float("-inf")

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting[0] or self._waiting[1])

    @property
    def total(self) -> int:
        """Everything that is charged."""
        return self.used + (0 if self.ahead is None else self.ahead.charged)

    def has_room(self, share: Share, size: int, *, is_small: bool) -> bool:
        if self.ahead is share:
            return not share.is_whole
        return self.used + size <= (self.limit if is_small else self.limit - self.limit // 4)

    def add(self, share: Share, size: int) -> None:
        self.charged[share] = None
        if self.ahead is not share:
            self.used += size

    def take_out(self, share: Share, size: int) -> None:
        """Less is charged: who waits may go on. Who was ahead, and has got its answers, is as all others again."""
        if self.ahead is not share:
            self.used -= size
        elif share.is_answered or not share.charged:
            self.ahead = None
            self.used += share.charged
        if not share.charged:
            self.charged.pop(share, None)
        self._wake_waiting()

    def queue(self, share: Share, *, is_small: bool) -> None:
        self._waiting[is_small][share] = None
        self._wake_waiting()

    def leave_queue(self, share: Share, *, is_small: bool) -> None:
        self._waiting[is_small].pop(share, None)

    def _wake_waiting(self) -> None:
        """Admit waiting shares. Those that hold little come first, because they finish soon. Each is charged here, so that no
        other share takes its capacity."""
        for queue in reversed(self._waiting):
            while queue:
                share = next(iter(queue))
                if share._try() is self and not self._put_ahead(share):
                    break
                queue.pop(share)
                share.wake()

    def _put_ahead(self, share: Share) -> bool:
        """Take one out of the account, unless another one is."""
        if self.ahead is not None:
            return False
        self.ahead = share
        share.is_whole = False
        self.charged[share] = None
        self.used -= share.charged
        return True

    def end_what_stands_still(self, now: float, stall_s: float) -> None:
        """Give up the frames whose peers send nothing. As often as one could have begun to stand still, whoever asks."""
        if now < self._looked_at + stall_s / 2:
            return
        self._looked_at = now
        for share in [each for each in self.charged if each.stands_still_since(now - stall_s)]:
            share.give_up(
                f"{share.unread_bytes()} bytes of a frame have stood still for {stall_s:g} s while others wait for memory"
            )


@attrs.define(eq=False, repr=False)
class InFlightBudget:
    """Bytes of requests of all connections of a broker. Owner: the broker's listeners."""

    limit: int
    stall_s: float = STALL_S
    shares: dict[Share, None] = attrs.field(factory=dict)
    _broker: Account = attrs.field(init=False)
    _principals: dict[str, Account] = attrs.field(factory=dict)
    """Those that are charged something."""

    def __attrs_post_init__(self) -> None:
        self._broker = Account("broker", self.limit)

    @property
    def held(self) -> int:
        """Return the bytes that all connections hold."""
        return sum(share.held for share in self.shares)

    @property
    def used(self) -> int:
        """Return the charged bytes: `held` without the first FREE_BYTES of each connection."""
        return self._broker.total

    def pressed(self) -> bool:
        """Return whether reads have to be small."""
        return self._broker.total > self.limit // 4

    @property
    def is_waited_for(self) -> bool:
        return self._broker.is_waited_for or any(account.is_waited_for for account in self._principals.values())

    @property
    def most_per_connection(self) -> int:
        """With requests under way; one frame may be larger."""
        return self.limit // SHARE_OF_CONNECTION

    def open_share(self) -> Share:
        """A connection's; `Share.close` ends it."""
        share = Share(self)
        self.shares[share] = None
        return share

    def accounts_of(self, payer: str) -> tuple[Account, Account]:
        """Return the accounts that charge a connection of this principal."""
        principal = self._principals.get(payer)
        if principal is None:
            principal = self._principals[payer] = Account(payer, self.limit // SHARE_OF_PRINCIPAL)
        return principal, self._broker

    def forget_empty(self, accounts: tuple[Account, ...]) -> None:
        for account in accounts:
            if account is not self._broker and not account.charged and not account.is_waited_for:
                self._principals.pop(account.name, None)
