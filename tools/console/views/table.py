"""All routes, view by view. A view is added by a line here, and one in `static/app.js`."""

from __future__ import annotations

from typing import Final

from ..around import forward, testing, wear
from ..routes import Route
from . import connections, groups, overview, produce, records, sign_in, topic, topics, transactions, walk

ROUTES: Final[tuple[Route, ...]] = (
    *overview.ROUTES,
    *topics.ROUTES,
    *topic.ROUTES,
    *records.ROUTES,
    *produce.ROUTES,
    *walk.ROUTES,
    *groups.ROUTES,
    *transactions.ROUTES,
    *connections.ROUTES,
    *sign_in.ROUTES,
    *wear.ROUTES,
    *forward.ROUTES,
    *testing.ROUTES,
)
