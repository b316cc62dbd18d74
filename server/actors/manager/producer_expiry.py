"""Forgetting producers that have not appended for `producer_id_expiration_ms` (Kafka: PeriodicProducerExpirationCheck)."""

from __future__ import annotations

import contextlib
from typing import Final

import trio

from ....protocol.errors import RequestError
from ...config.broker_config import BrokerConfig
from ...storage.disk.diskops import Procedure
from ...storage.log.log import Log
from ...system.clock import NowMs
from ..disk.task_errors import TaskErrors
from .topics import Topics

LOGS_PER_TURN: Final = 32


async def expire_producers(topics: Topics, now_ms: NowMs, config: BrokerConfig, errors: TaskErrors) -> None:
    """In every log's turn; a log without producers is left alone."""

    def expire(log: Log) -> Procedure[int]:
        yield from ()
        return log.producers.expire(now_ms(), config.producer_id_expiration_ms)

    for number, hosted in enumerate(topics.hosted()):
        if number % LOGS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        if hosted.actor.log.producers.entries and hosted.actor.log.refusal is None:
            with errors.isolate("producer-expiry", hosted.actor.topic_partition), contextlib.suppress(RequestError):
                await hosted.actor.perform(expire)
