"""Servers and ingests of a session are forks of one program that has loaded what both of them load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.forked_servers import ServerForker
from tests.support.server_process import environment

LOADED: Final = (
    "triolog.tools.cli.forward.options",
    "triolog.tools.cli.ingest",
    "triolog.tools.forward.process.run_links",
    "triolog.tools.ingest.broker",
    "triolog.tools.ingest.file_ingest",
    "triolog.tools.ingest.file_store",
    "triolog.tools.ingest.ingest",
    "triolog.tools.ingest.store",
)
"""What an ingest imports, beside what a server does."""


@pytest.fixture(scope="session")
def ingest_forker() -> Iterator[ServerForker]:
    """Stands for the commands `triolog serve` and `triolog ingest`, which tests kill again and again."""
    with ServerForker.running(environment(), *LOADED) as forker:
        yield forker
