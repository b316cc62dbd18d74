"""`triolog serve --schema-registry`, and the costs of a registry for programs with one and without."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pytest
import trio
from triolog.protocol.extras import how_to_install
from triolog.server.embedded import aio, opening

from tests.support.registry_client import RegistryClient, record
from tests.support.server_process import ServerFolder, environment, python_command

pytestmark = pytest.mark.usefixtures("extra")

ORDER: Final = record("Order", "table: int")
MOST_MIB: Final = 40
COUNTS: Final = """
import json, sys, triolog
from triolog.server.embedded import MEMORY

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

def loaded():
    return sorted(name for name in sys.modules if name.split(".")[0] in ("avro", "google", "h11") or ".registry" in name)

with triolog.blocking.open(MEMORY, kafka="127.0.0.1:0") as broker:
    without, before = loaded(), resident()
    broker.schema_registry_url
    print(json.dumps([without, loaded(), resident() - before]))
"""


@pytest.mark.parametrize("mode", [(), ("--control", "127.0.0.1:0")], ids=["server", "server for tests"])
def test_a_server_has_a_registry_and_its_schemas_after_a_restart(server_folder: ServerFolder, mode: tuple[str, ...]) -> None:
    for _ in range(2):
        server = server_folder.start("--schema-registry", "0", *mode)
        registry = RegistryClient("http://{}:{}".format(*server.address_of("schema_registry")))
        assert registry.register("s", ORDER) == 1
        assert server.stop() == 0, server.stderr()


@pytest.mark.merge
def test_without_the_extra_the_error_says_how_to_get_it(server_folder: ServerFolder) -> None:
    hidden = "import importlib.util as u; real = u.find_spec; u.find_spec = lambda n, *a: None if n == 'avro' else real(n, *a)"
    command = [*python_command(hidden), "serve", "--data-dir", str(server_folder.data_dir), "--schema-registry", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 2
    assert f"the schema registry needs avro: {how_to_install('registry')}" in done.stderr


@pytest.mark.merge
def test_an_address_that_is_taken_ends_the_start(server_folder: ServerFolder) -> None:
    with server_folder.start("--schema-registry", "0") as server:
        taken = "{}:{}".format(*server.address_of("schema_registry"))
        other = [*python_command(""), "serve", "--data-dir", str(server_folder.data_dir / "other"), "--native", "0"]
        done = subprocess.run(
            [*other, "--schema-registry", taken], capture_output=True, text=True, env=environment(), timeout=60
        )
    assert done.returncode == 3
    assert f"cannot listen on {taken}" in done.stderr


@pytest.mark.merge
def test_a_program_pays_for_a_registry_only_when_it_has_one() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, timeout=120, check=True)
    without, loaded, mebibytes = json.loads(done.stdout)
    assert without == []
    assert {"avro", "h11", "triolog.server.registry.rest"} <= set(loaded)
    assert mebibytes < MOST_MIB


async def in_trio() -> list[str]:
    async with opening.open() as broker:
        return [await broker.start_schema_registry(), await broker.start_schema_registry()]


async def in_asyncio() -> list[str]:
    async with aio.open() as broker:
        return [await broker.start_schema_registry(), await broker.start_schema_registry()]


@pytest.mark.parametrize("kind", ["trio", "asyncio"])
def test_programs_of_every_kind_start_it_once(kind: str) -> None:
    import asyncio

    urls: Any = trio.run(in_trio) if kind == "trio" else asyncio.run(in_asyncio())
    assert urls[0] == urls[1]
    assert urls[0].startswith("http://127.0.0.1:")
