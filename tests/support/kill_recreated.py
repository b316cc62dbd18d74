"""A topic that is deleted and created again under its name as a load: each life of it is a topic of its own."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.types import TopicPartition

from tests.support.kill_loads import Caller, ProducerLoad, TrimmingLoad
from tests.support.stored_log import read_stored_log
from tests.support.wire_client import WireClient

STEPS: Final = 8
"""Of a life, about: a kill comes soon after the topic was created again."""


@attrs.define(eq=False)
class RecreatingLoad(TrimmingLoad):
    """A producer that now and then has its topic deleted and created again. The history knows each life by a name of its own. A
    change that was not answered is asked for again."""

    config: dict[str, str] = attrs.field(factory=dict)
    _life: int = 0
    _wants: bool | None = None
    """Whether the topic is to be there, where that was asked for and not answered; None: it is there."""
    _may_have_committed: bool = False
    """In this life, without an answer."""
    _named: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._named, self._wants = self.make, True

    @property
    def noted(self) -> TopicPartition:
        return TopicPartition(f"{self.where.topic} {self._life}", self.where.partition)

    def step(self, caller: Caller) -> None:
        self.settle(caller)
        if self.rng.random() < 1 / STEPS:
            self._wants = False
            self.settle(caller)
        else:
            super().step(caller)

    def settle(self, caller: Caller) -> None:
        """Let the topic be gone, then there, if that was not answered; else produce what was not."""
        if self._wants is False:
            self._change(caller, messages.DeleteTopicsRequest((self.where.topic,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.history.forget(self.noted)
            self._life, self._wants = self._life + 1, True
        if self._wants:
            topic = messages.NewTopic(self.where.topic, 1, self.config)
            self._change(caller, messages.CreateTopicsRequest((topic,)), ErrorCode.TOPIC_ALREADY_EXISTS)
            self._begin_life(caller)
        ProducerLoad.settle(self, caller)

    def _change(self, caller: Caller, request: messages.RequestMessage, done_before: ErrorCode) -> None:
        (entry,) = caller.ask(request).topics
        if entry.error is not None and entry.error.code is not done_before:
            raise entry.error

    def _begin_life(self, caller: Caller) -> None:
        self.make = partial(self._named, f"{self.name}-{self._life}")
        self._identity, self._sequence, self._told_offset, self._unanswered, self._deleted_before = None, 0, -1, None, 0
        found = caller.ask_one(messages.FetchOffsetsRequest(self.name, (messages.Partition(*self.where),)))
        assert found.offset == -1 or self._may_have_committed, f"{self.noted} has inherited offset {found.offset}"
        self._may_have_committed = True
        partition = messages.CommittedPartition(*self.where, 1, "")
        caller.ask_one(messages.CommitOffsetsRequest(self.name, (partition,)))
        self._wants, self._may_have_committed = None, False

    def read(self, client: WireClient) -> None:
        """Note what is in the topic, if it is there for sure."""
        if self._wants is None:
            try:
                log = read_stored_log(client, *self.where)
            except RequestError as exc:
                raise AssertionError(f"{self.noted} is gone") from exc
            self.history.read(self.noted, log)
            log.check_dense()
