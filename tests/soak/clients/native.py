"""The native client of trio programs: all roles in one event loop, each over a connection of its own."""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.types import TopicPartition
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import Client
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.greeted_connection import TcpOpener
from triolog.tools.client.producer import open_producer

from tests.soak.clients.worker import Notebook, Notes

from .native_roles import COMMIT_EVERY_S, ROLES, config_of
from .worker import POLL_S, Orders, Task, Work


@attrs.frozen
class TrioApi:
    client: Client

    def open_producer(self, **options: Any) -> AbstractAsyncContextManager[Any]:
        return open_producer(self.client, **options)

    def open_consumer(self, **options: Any) -> AbstractAsyncContextManager[Any]:
        return open_consumer(self.client, **options)

    async def next_batch(self, consumer: Any) -> Any:
        with trio.move_on_after(COMMIT_EVERY_S):
            return await consumer.next_batch()
        return None

    async def pause(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def poll(self, producer: Any) -> None:
        """It works by itself."""


async def look(work: Work, api: TrioApi) -> None:
    while not work.orders.is_quiet:
        where, timestamp = work.to_look_up()
        begun = time.monotonic_ns()
        try:
            [found] = (await Admin(api.client).offsets_for_times({TopicPartition(*where): timestamp})).values()
        except TriologError:
            await trio.sleep(POLL_S)
            continue
        work.notes.looked_up(where, timestamp, begun, found.offset, found.timestamp)
        await trio.sleep(work.rng.uniform(0, 2))


async def main(task: Task, orders: Orders, notes: Notes) -> None:
    async with trio.open_nursery() as nursery:
        for number, role in enumerate(task.roles):
            who = f"{task.name}/{task.life}/{role['role']}{number}"
            work = Work(task, role, orders, Notebook(notes, who), random.Random(f"{task.seed}/{who}"))
            nursery.start_soon(_play, work)


async def _play(work: Work) -> None:
    work.notes.write("begins")
    async with trio.open_nursery() as nursery:
        client = Client(nursery, TcpOpener(work.task.native_address), config_of(work))
        await {**ROLES, "look": look}[work.role["role"]](work, TrioApi(client))
        client.close()
        nursery.cancel_scope.cancel()
    work.notes.write("is done")


if __name__ == "__main__":
    told, heard = Task.from_json(sys.argv[1]), Orders()
    written = Notes(told.history)
    threading.Thread(target=heard.listen, daemon=True).start()
    try:
        trio.run(main, told, heard, written)
    except BaseException:
        written.write(told.name, "failed", error=traceback.format_exc())
        raise
