"""A broker in the lifespan of a FastAPI application: readings come in by POST, and a task of the lifespan copies high ones
into a topic of alarms, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import triolog
from fastapi import Depends, FastAPI, HTTPException, Request
from triolog.protocol.errors import RequestError
from triolog.server.embedded.aio import AioBroker

HIGH = 30.0


async def copy_alarms(broker: AioBroker) -> None:
    """For as long as the application runs."""
    follow = broker.follow("readings", group="alarms")
    async for record in follow:
        async with broker.transaction("alarms") as transaction:
            if float(record.value or b"0") > HIGH:
                await transaction.append("alarms", [record.value or b""], key=record.key)
            await transaction.commit_offsets("alarms", await follow.positions())


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The broker runs while the application does."""
    async with triolog.aio.open(app.state.path) as broker:
        for topic in {"readings", "alarms"} - set(await broker.topics()):
            await broker.create_topic(topic, 2)
        app.state.broker = broker
        copier = asyncio.create_task(copy_alarms(broker))
        yield
        copier.cancel()
        with suppress(asyncio.CancelledError):
            await copier


def broker_of(request: Request) -> AioBroker:
    """For routes."""
    broker: AioBroker = request.app.state.broker
    return broker


Log = Annotated[AioBroker, Depends(broker_of)]


def application(path: Any) -> FastAPI:
    """One that keeps its log in `path`."""
    app = FastAPI(lifespan=lifespan)
    app.state.path = path

    @app.post("/readings/{sensor}")
    async def add(sensor: str, value: float, broker: Log) -> dict[str, int]:
        result = await broker.append("readings", [b"%g" % value], key=sensor.encode())
        return {"offset": result.base_offset}

    @app.get("/readings")
    async def readings(broker: Log, topic: str = "readings") -> list[str]:
        try:
            return [(each.value or b"").decode() async for each in broker.follow(topic, max_wait_s=0)]
        except RequestError as exc:
            raise HTTPException(404, exc.message) from exc

    @app.get("/alarms/{count}")
    async def alarms(count: int, broker: Log) -> list[str]:
        follow = broker.follow("alarms")
        return [(await anext(follow)).value.decode() for _ in range(count)]  # type: ignore[union-attr]

    return app
