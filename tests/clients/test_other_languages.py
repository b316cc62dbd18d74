"""Every scenario through clients of other languages. A program for each client lives as long as this module's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.clients import external_programs
from tests.clients.external_driver import ExternalDriver, ExternalProgram
from tests.clients.external_programs import Command, ProgramUnavailableError
from tests.clients.scenarios import SCENARIOS, Cluster

PROGRAMS: dict[str, Callable[[], Command]] = {
    "franz-go": partial(external_programs.go, "franz-go"),
    "sarama": partial(external_programs.go, "sarama"),
    "kafkajs": external_programs.kafkajs,
    "java": external_programs.java,
}


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Iterator[ExternalProgram]:
    try:
        command = PROGRAMS[request.param]()
    except ProgramUnavailableError as exc:
        external_programs.unavailable(str(exc))
    with ExternalProgram.running(request.param, command) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster.start(str(tmp_path / "data"))
    yield started
    started.broker.stop()


@pytest.mark.timeout(1200)  # the first one builds
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_client_can(program: ExternalProgram, cluster: Cluster, name: str) -> None:
    SCENARIOS[name](ExternalDriver(program, str(cluster.address)), cluster)
