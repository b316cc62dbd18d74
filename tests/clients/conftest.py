"""Programs that drive clients of other languages; each lives as long as the session, its broker as long as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.clients import external_programs
from tests.clients.external_driver import ExternalProgram
from tests.clients.external_programs import Command, ProgramUnavailableError
from tests.clients.scenarios import Cluster

PROGRAMS: dict[str, Callable[[], Command]] = {
    "franz-go": partial(external_programs.go, "franz-go"),
    "sarama": partial(external_programs.go, "sarama"),
    "kafkajs": external_programs.kafkajs,
    "java": external_programs.java,
}


@pytest.fixture(scope="session", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Iterator[ExternalProgram]:
    try:
        command = PROGRAMS[request.param]()
    except ProgramUnavailableError as exc:
        external_programs.unavailable(str(exc))
    with ExternalProgram.running(request.param, command) as running:
        yield running


@pytest.fixture
def other_cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster.start(str(tmp_path / "data"))
    yield started
    started.broker.stop()
