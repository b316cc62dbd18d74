"""Histories of members of one group whose assignments the server makes, which come, go, die and lose answers: the part that
share and Streams groups have in common. A machine of one kind adds how its members join, what they say, and what must hold."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule
from triolog.protocol.errors import ErrorCode, RequestError

SESSION_MS: Final = 45_000
MOST_MEMBERS: Final = 6
REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


@attrs.define(eq=False)
class Client:
    """A member as it knows itself."""

    member_id: str
    wants: Any
    """What it says when it joins."""
    has: Any
    epoch: int = 0
    is_out: bool = False


class MemberHistories(RuleBasedStateMachine):
    clients: ClassVar = Bundle("clients")
    nothing: ClassVar[object]
    """The assignment of a member that joins."""
    driven: Any

    def __init__(self) -> None:
        super().__init__()
        self.living: list[Client] = []
        self.count = 0

    def heartbeat(self, client: Client, *, is_full: bool) -> Any:
        """Send one heartbeat, which says everything when `is_full`."""
        raise NotImplementedError

    def speak(self, client: Client, *, is_full: bool = False) -> None:
        if client.is_out:
            client.epoch, client.is_out, client.has = 0, False, self.nothing
        try:
            answer = self.heartbeat(client, is_full=is_full)
        except RequestError as exc:
            if exc.code not in REJOIN:
                raise
            client.is_out = True
            return
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.has = answer.assignment

    def add(self, wants: object) -> object:
        if len(self.living) >= MOST_MEMBERS:
            return multiple()
        self.count += 1
        client = Client(f"m{self.count}", wants, self.nothing)
        self.speak(client)
        self.living.append(client)
        return client

    @rule(client=clients, is_full=st.booleans())
    def beat(self, client: Client, is_full: bool) -> None:
        if client in self.living:
            self.speak(client, is_full=is_full)

    @rule(client=clients)
    def lose_an_answer(self, client: Client) -> None:
        """The client does not know what became of its heartbeat, and says everything with the next one."""
        if client in self.living and not client.is_out and client.epoch:
            before = client.epoch, client.has
            self.speak(client)
            if not client.is_out:
                client.epoch, client.has = before
                self.speak(client, is_full=True)

    @rule(client=consumes(clients), says_so=st.booleans())
    def leave_or_die(self, client: Client, says_so: bool) -> None:
        if client in self.living:
            self.living.remove(client)
            if says_so and not client.is_out:
                try:
                    self.driven.heartbeat(client.member_id, -1)
                except RequestError as exc:
                    if exc.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                        raise

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        if compacted:
            self.driven.compact()
        self.driven.restart()

    @rule(passed_ms=st.integers(1, SESSION_MS))
    def pass_time(self, passed_ms: int) -> None:
        self.driven.pass_time(self.driven.now_ms + passed_ms)
