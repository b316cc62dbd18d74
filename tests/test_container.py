"""The image in packaging/container, the module for testcontainers and the action in packaging/action.

The scripts run everywhere, as the image runs them. The merge tier builds and runs the image where the programs for that exist.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import click
import pytest
import triolog
import yaml
from confluent_kafka import Producer
from triolog.server.config.broker_settings import read_settings
from triolog.tools.cli.main import main

from tests.support.container_image import FOLDER, IMAGE, ROOT, Containers, containers, missing
from tests.support.control_port import PATIENCE_S
from tests.support.server_process import ServerFolder, ServerProcess, environment

ENTRYPOINT: Final = FOLDER / "entrypoint"
HEALTHCHECK: Final = FOLDER / "healthcheck"
DOCKERFILE: Final = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: Final = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
ACTION: Final = yaml.safe_load((ROOT / "packaging/action/action.yml").read_text(encoding="utf-8"))
MODULE: Final = ROOT / "tools" / "testcontainers" / "__init__.py"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOKEN: Final = "0123456789abcdef"
ON_PATH: Final = {"PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
OF_THE_ENTRYPOINT: Final = frozenset({"TRIOLOG_CONTROL", "TRIOLOG_CONTROL_TOKEN"})
LONGEST_MODULE: Final = 20
"""Lines of code in the body of the class."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ServerFolder]:
    """Servers that the entry point starts."""
    with ServerFolder(tmp_path, command=(str(ENTRYPOINT),)) as folder:
        yield folder


def status_of(server: ServerProcess, token: str) -> int:
    address = server.address_of("control")
    connection = HTTPConnection(*address, timeout=PATIENCE_S)
    connection.request("GET", "/", headers={"Authorization": f"Bearer {token}"})
    status = connection.getresponse().status
    connection.close()
    return status


# ---- the entry point and the health check --------------------------------------------------------------------------------


@pytest.mark.merge
def test_with_a_token_the_entry_point_starts_a_server_for_tests_and_hides_the_token(folder: ServerFolder) -> None:
    variables = {**ON_PATH, "TRIOLOG_CONTROL_TOKEN": TOKEN, "TRIOLOG_CONTROL": "127.0.0.1:0"}
    server = folder.start(extra_environment=variables)
    assert (status_of(server, TOKEN), status_of(server, "another")) == (200, 401)
    process = Path(f"/proc/{server.pid}")
    assert all(TOKEN.encode() not in (process / name).read_bytes() for name in ("cmdline", "environ"))
    assert TOKEN not in server.stderr()
    assert server.stop() == 0, server.stderr()


@pytest.mark.merge
def test_without_a_token_it_has_no_control_port_and_other_commands_run(folder: ServerFolder) -> None:
    server = folder.start(extra_environment={**ON_PATH, "TRIOLOG_CONTROL": "127.0.0.1:0"})
    assert "control" not in json.loads(server.ready_file.read_text())
    variables = environment({**ON_PATH, "TRIOLOG_CONTROL_TOKEN": TOKEN})
    done = subprocess.run([ENTRYPOINT, "--version"], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"triolog {triolog.__version__}\n")


@pytest.mark.merge
def test_as_pid_1_the_server_stops_cleanly_on_sigterm(tmp_path: Path) -> None:
    """Of a PID namespace, as in a container. The kernel ignores signals to PID 1 that it does not handle."""
    isolated = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not create a PID namespace")
    with ServerFolder(tmp_path, command=(*isolated, str(ENTRYPOINT))) as folder:
        server = folder.start(extra_environment=ON_PATH)
        child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())
        assert re.search(r"^NSpid:\s+\d+\s+1$", Path(f"/proc/{child}/status").read_text(), re.MULTILINE)
        os.kill(child, signal.SIGTERM)
        assert server.wait_exit() == 0, server.stderr()
        assert "stopping signal=SIGTERM" in server.stderr()
        assert (folder.data_dir / ".kafka_cleanshutdown").exists()


def healthcheck(variables: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run([HEALTHCHECK], env={**ON_PATH, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


@pytest.mark.merge
def test_the_health_check_succeeds_as_long_as_the_server_is_ready(folder: ServerFolder) -> None:
    server = folder.start("--metrics", "127.0.0.1:0", extra_environment=ON_PATH)
    variables = {"TRIOLOG_METRICS": str(server.address_of("metrics").port)}
    assert healthcheck(variables)[0] == 0
    server.stop()
    code, line = healthcheck(variables)
    assert (code, line.startswith("not ready: ")) == (1, True)
    assert healthcheck({}) == (1, "not ready: 'TRIOLOG_METRICS'")


# ---- what the files say --------------------------------------------------------------------------------------------------


def instructions(name: str) -> list[str]:
    """The arguments of an instruction of the Dockerfile, lines that continue put together."""
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return re.findall(rf"^{name} (.+)$", joined, re.MULTILINE)


def test_the_image_is_not_root_and_starts_the_command_itself() -> None:
    assert instructions("USER") == ["10001:10001"]
    assert [json.loads(instructions(name)[0]) for name in ("ENTRYPOINT", "CMD")] == [["entrypoint"], ["serve"]]
    assert instructions("HEALTHCHECK")[0].endswith('CMD ["healthcheck"]')
    assert (instructions("STOPSIGNAL"), instructions("VOLUME")) == (["SIGTERM"], ["/var/lib/triolog"])
    assert [path for path in (ENTRYPOINT, HEALTHCHECK) if not os.access(path, os.X_OK)] == []


def test_the_image_has_what_a_build_needs_and_settings_that_a_server_knows() -> None:
    copied = {word for line in instructions("COPY") for word in shlex.split(line)[:-1] if not word.startswith("--")}
    assert {*(path.name for path in ROOT.iterdir() if (ROOT / "triolog" / path.name).is_symlink()), "triolog"} <= copied
    assert {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]} <= copied
    settings = dict(each.split("=", 1) for line in instructions("ENV") for each in shlex.split(line))
    assert settings.pop("PATH").startswith("/opt/triolog/bin:")
    assert read_settings(None, settings, {}).keys() == {"data_dirs", "kafka", "native", "metrics", "topic_defaults"}
    [extras] = (each.removeprefix("EXTRAS=") for each in instructions("ARG") if each.startswith("EXTRAS="))
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_compose_publishes_on_this_machine_only_and_says_what_servers_and_commands_know() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"server", "console", "registry"}
    assert [port for port in services["server"]["ports"] if not port.startswith("127.0.0.1:")] == []
    assert [name for name in ("console", "registry") if services[name]["network_mode"] != "service:server"] == []
    variables = services["server"]["environment"]
    assert read_settings(None, {name: each for name, each in variables.items() if name not in OF_THE_ENTRYPOINT}, {})
    build = services["server"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    name, *arguments = services["console"]["command"]
    command = main.get_command(click.Context(main), name)
    assert command is not None
    command.make_context(name, list(arguments), resilient_parsing=True)


def test_the_module_for_testcontainers_is_short() -> None:
    body = MODULE.read_text(encoding="utf-8").partition("class TriologContainer")[2].splitlines()[1:]
    code = [line for line in body if line.strip() and not line.strip().startswith('"""')]
    assert 10 < len(code) <= LONGEST_MODULE


# ---- the action ----------------------------------------------------------------------------------------------------------


@pytest.mark.merge
def test_the_action_starts_a_server_and_names_its_addresses(tmp_path: Path) -> None:
    install, start = ACTION["runs"]["steps"]
    place = ROOT / "packaging" / "action"
    assert (place / "../..").resolve() == ROOT
    assert '"$GITHUB_ACTION_PATH/../..[cli]"' in install["run"]
    assert start["env"] == {"KAFKA": "${{ inputs.kafka }}", "ARGUMENTS": "${{ inputs.arguments }}"}
    outputs = tmp_path / "outputs"
    variables = {
        **ON_PATH,
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_ACTION_PATH": str(place),
        "GITHUB_OUTPUT": str(outputs),
        "KAFKA": "127.0.0.1:0",
        "ARGUMENTS": "--nodes 2",
    }
    command = ["bash", "-c", start["run"]]
    subprocess.run(command, env=environment(variables), check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
    said = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    try:
        named = {each["value"].split(".")[-1].rstrip(" }") for each in ACTION["outputs"].values()}
        assert named == ACTION["outputs"].keys() == said.keys() - {"pid"}
        producer = Producer({"bootstrap.servers": said["kafka"], "log_level": 0})
        producer.produce("t", b"espresso")
        assert producer.flush(PATIENCE_S) == 0
        connection = HTTPConnection(*said["control"].split(":"), timeout=PATIENCE_S)
        connection.request("GET", "/")
        assert len(json.loads(connection.getresponse().read())["nodes"]) == 2
        connection.close()
    finally:
        stop_and_wait(int(said["pid"]))
    failing = {**variables, "ARGUMENTS": "--no-such-option"}
    done = subprocess.run(command, env=environment(failing), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, "--no-such-option" in done.stderr) == (1, True)


def stop_and_wait(pid: int) -> None:
    """Of a process that is not our child."""
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGTERM)
        assert select.select([descriptor], [], [], PATIENCE_S)[0]
    finally:
        os.close(descriptor)


# ---- the image -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    if (why := missing()) is not None:
        pytest.skip(why)
    with containers(tmp_path_factory.mktemp("image")) as there:
        yield there


PUBLISHED: Final = ("--publish=127.0.0.1::9092", "--publish=127.0.0.1::9095", "--env=TRIOLOG_INSECURE=true")


@pytest.mark.merge
@pytest.mark.timeout(900)
def test_a_container_keeps_records_over_a_kill_and_stops_cleanly(image: Containers) -> None:
    container = image.create(*PUBLISHED)
    image.podman("start", container)
    image.wait_healthy(container)
    with triolog.blocking.connect(image.published(container, 9095)) as client:
        client.create_topic("t", 1)
        client.append("t", [b"espresso"])
    image.podman("kill", "--signal", "KILL", container)
    image.podman("wait", container)
    image.podman("start", container)
    image.wait_healthy(container)
    with triolog.blocking.connect(image.published(container, 9095)) as client:
        assert [record.value for record in client.fetch("t")] == [b"espresso"]
    assert image.podman("exec", container, "id", "-u") == "10001"
    assert "t" in image.podman("exec", container, "triolog", "topics", "list").split()
    assert image.podman("exec", container, "cat", "/proc/1/comm") == "triolog"
    image.podman("stop", "--time", "60", container)
    assert image.podman("inspect", "--format", "{{.State.ExitCode}}", container) == "0"


IN_MEMORY: Final = """
import shutil, triolog
print(shutil.disk_usage("/dev/shm").total)
with triolog.blocking.open(":memory:", topics=["t"]) as broker:
    try:
        for _ in range(100):
            broker.append("t", [b"v" * 1_000_000])
    except triolog.RequestError as exc:
        print("docker run --shm-size=1g" in str(exc))
    broker.delete_topic("t")
    broker.create_topic("u")
    print(broker.append("u", [b"again"]).base_offset)
"""


@pytest.mark.merge
@pytest.mark.timeout(900)
def test_a_broker_in_64_mb_of_shared_memory_refuses_what_does_not_fit(image: Containers) -> None:
    printed = image.run("--shm-size=64m", "--entrypoint=python", command=("-c", IN_MEMORY))
    assert printed.split() == [str(64 * 2**20), "True", "0"]


IN_A_CONTAINER: Final = """
import sys
from confluent_kafka import Producer
from docker.types import Ulimit
from triolog.tools.testcontainers import TriologContainer

limits = [Ulimit(name=name, soft=4096, hard=4096) for name in ("nofile", "nproc")]
with TriologContainer(sys.argv[1], ulimits=limits) as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce("t", b"espresso")
    print(producer.flush(30), [record["value"] for record in broker.control("GET", "/topics/t/records")])
"""


@pytest.mark.merge
@pytest.mark.timeout(900)
def test_testcontainers_reaches_the_broker_at_the_published_port(image: Containers) -> None:
    """Through podman's socket, which speaks Docker's API. Kafka clients are sent to the port that was published."""
    pytest.importorskip("testcontainers", reason="testcontainers is not installed")
    with image.docker_socket() as address:
        ours = {"CONNECTION_MODE": "docker_host", "HOST_OVERRIDE": "127.0.0.1", "RYUK_DISABLED": "true"}
        named = {f"TESTCONTAINERS_{name}": value for name, value in ours.items()}
        variables = {**os.environ, **named, "DOCKER_HOST": address}
        command = [sys.executable, "-c", IN_A_CONTAINER, IMAGE]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=10 * PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "0 ['espresso']\n"), done.stderr
