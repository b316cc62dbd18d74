"""Who sets users and quotas, and looks whether they are what was set last. They concern no client of the world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable
from typing import Final

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.tools.client.admin import Admin

from tests.simulation.clients.readers import Native
from tests.simulation.history import Wrong

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096
KEY: Final = "producer_byte_rate"
SURELY_OVER_S: Final = 10.0
"""After which a request without an answer has no effect any more."""


@attrs.define
class Value:
    """`possible`: values that were set without an answer, by when. None is: not set."""

    certain: float | None = None
    possible: list[tuple[float, float | None]] = attrs.field(factory=list)


@attrs.define(eq=False)
class Registrar(Native):
    _values: defaultdict[str, Value] = attrs.field(factory=lambda: defaultdict(Value))

    @property
    def _admin(self) -> Admin:
        return Admin(self.client)

    async def quota(self, name: str, value: float | None) -> None:
        await self._set(f"quota {name}", value, self._admin.alter_quotas({"client-id": name}, {KEY: value}))
        await self.look()

    async def user(self, name: str, is_there: bool) -> None:
        salted = {MECHANISM: (ITERATIONS, b"salt", bytes(32)) if is_there else None}
        await self._set(f"user {name}", 1.0 if is_there else None, self._admin.alter_users(name, salted))
        await self.look()

    async def _set(self, what: str, value: float | None, call: Awaitable[None]) -> None:
        kept = self._values[what]
        kept.possible.append((trio.current_time(), value))
        try:
            await call
        except TriologError:
            return
        now = trio.current_time()
        kept.certain = value
        kept.possible = [each for each in kept.possible[:-1] if now - each[0] < SURELY_OVER_S]

    async def look(self) -> None:
        """Nothing else is there than what was set last, or may have been."""
        try:
            quotas, users = await self._admin.describe_quotas(), await self._admin.describe_users()
        except TriologError:
            return
        found: dict[str, float | None] = {f"quota {entity['client-id']}": values[KEY] for entity, values in quotas}
        found |= {f"user {user}": 1.0 for user in users}
        for what in self._values.keys() | found.keys():
            kept, value = self._values[what], found.get(what)
            if value != kept.certain and value not in [each for _, each in kept.possible]:
                said = f"{what} is {value}, was set to {kept.certain}"
                self.world.add(Wrong(**self.now(), kind=f"{what.split()[0]}s", detail=said))
