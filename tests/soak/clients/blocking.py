"""The native client without trio: each role in a thread of its own, with connections of its own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
from triolog.tools.client.blocking import BlockingClient, BlockingConsumer, BlockingProducer

from .native_roles import COMMIT_EVERY_S, ROLES, config_of
from .worker import Part, Work, run


@attrs.frozen
class Awaited:
    """What a thread blocks for, for those who await it."""

    blocking: Any

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.blocking, name)
        if not callable(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            return found(*arguments, **options)

        return call

    def transaction(self) -> Awaited:
        return Awaited(self.blocking.transaction())


@attrs.frozen
class BlockingApi:
    work: Work

    def _client(self) -> BlockingClient:
        return BlockingClient(self.work.task.native_address, config_of(self.work))

    @asynccontextmanager
    async def open_producer(self, **options: Any) -> AsyncIterator[Awaited]:
        with self._client() as client:
            producer = BlockingProducer(client, **options)
            try:
                yield Awaited(producer)
                producer.close()
            except BaseException:
                producer.close(flush=False)
                raise

    @asynccontextmanager
    async def open_consumer(self, **options: Any) -> AsyncIterator[Awaited]:
        with self._client() as client, BlockingConsumer(client, **options) as consumer:
            yield Awaited(consumer)

    async def next_batch(self, consumer: Any) -> Any:
        try:
            return await consumer.next_batch(timeout_s=COMMIT_EVERY_S)
        except TimeoutError:
            return None

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def poll(self, producer: Any) -> None:
        await producer.poll()


def in_a_thread(name: str) -> Part:
    """The role, which never has to wait for an event loop."""

    def play(work: Work) -> None:
        try:
            ROLES[name](work, BlockingApi(work)).send(None)
        except StopIteration:
            return
        raise AssertionError(f"{name} waits for an event loop")

    return play


if __name__ == "__main__":
    run({name: in_a_thread(name) for name in ROLES})
