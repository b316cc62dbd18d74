"""The same fixtures as for actors."""

from __future__ import annotations

from tests.server.actors.conftest import broker as broker
from tests.server.actors.conftest import clock as clock
from tests.server.actors.conftest import fs as fs
