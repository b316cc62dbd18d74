"""franz-go's own tests of share groups, which it skips without ShareFetch 2 and ShareAcknowledge 2, run against triolog."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY

from tests.clients import external_programs
from tests.clients.external_programs import ProgramUnavailableError
from tests.support.server_process import environment

NAMES: Final = (
    "TestShareGroup",
    "TestShareGroupETL",
    "TestShareGroupAckOnClose",
    "TestShareGroupOffsetsAdmin",
    "TestConsumeRegexShareSkipsInternal",
)
RECORDS: Final = 20_000
"""In place of the 500,000 that they move by themselves."""
DEADLINE_S: Final = 300
DELIVERIES: Final = 10
"""As often as can be: of so few records many are in flight at once, so that members which leave give the same ones back up to
eight times, and after five deliveries one would be archived and missed."""

pytestmark = [pytest.mark.merge, pytest.mark.timeout(1_200)]  # Go compiles it for minutes on a fresh machine


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return external_programs.franz_go_tests()
    except ProgramUnavailableError as exc:
        external_programs.unavailable(str(exc))


@pytest.fixture(scope="module")
def output(program: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What they print when they run at once, as franz-go runs them: one of them waits for a topic that others make."""
    folder = tmp_path_factory.mktemp("franz-go")
    command = [program, f"-test.run=^({'|'.join(NAMES)})$", "-test.v", f"-test.timeout={DEADLINE_S}s"]
    limits = {"group_share_delivery_count_limit": DELIVERIES}
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), lenient=False, settings=limits) as broker:
        settings = {"KGO_SEEDS": broker.bootstrap_servers, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS)}
        variables = environment({**settings, "KGO_LOG_LEVEL": "none"})
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_test_of_franz_go_passes(output: str, name: str) -> None:
    assert f"--- PASS: {name} " in output, output[-6_000:]  # and was not skipped
