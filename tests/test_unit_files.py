"""The units in packaging/systemd: systemd finds nothing wrong with them, and what they start does what they expect.

Started they are by `StandInSupervisor`, with the paths of the test in place of those of a machine; what confines a service is
not tried, only judged by `systemd-analyze security`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import attrs
import pytest
import triolog
from triolog.server.config.broker_settings import read_settings
from triolog.tools.cli.main import SUBCOMMANDS

from tests.support.forwarding import ANY_PORT, FOR_EVER, TOPIC, forwarding, until
from tests.support.server_process import COMMAND, environment
from tests.support.supervisor import StandInSupervisor
from tests.tools.cli.conftest import call

FOLDER: Final = Path(__file__).resolve().parent.parent / "packaging/systemd"
SERVER: Final = "triolog.service"
LINK: Final = "triolog-forward@.service"
INGEST: Final = "triolog-ingest@.service"
UNITS: Final = (SERVER, LINK, INGEST)
INSTALLED: Final = "/opt/triolog/bin/triolog"
CONFIG: Final = "/etc/triolog/triolog.toml"
MOST_EXPOSED: Final = 15
"""Of systemd's 100, at which it says OK below 50; a service that talks over a network has at least 10."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here; the parsing of the units is tested all the same")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_made_of_settings_and_starts_our_command(name: str) -> None:
    unit = UnitFile.read(FOLDER / name)
    assert set(unit.sections) == {"Unit", "Service", "Install"}
    command, subcommand, *_, option, _ = unit.command()
    assert (command, option) == (INSTALLED, "--config")
    if subcommand not in SUBCOMMANDS and importlib.util.find_spec("triolog.tools.forward") is None:
        pytest.skip(f"triolog {subcommand} is not there")
    assert subcommand in SUBCOMMANDS


@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong(tmp_path: Path, name: str) -> None:
    """With our command where it is, and without the manual pages that are not installed here."""
    lines = (FOLDER / name).read_text().replace(INSTALLED, *COMMAND).splitlines(keepends=True)
    there = tmp_path / name
    there.write_text("".join(line for line in lines if not line.startswith("Documentation=man:")))
    verified = analyze("verify", str(there))
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_a_service_is_confined(name: str) -> None:
    judged = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(FOLDER / name))
    if "unrecognized option" in judged.stderr:
        pytest.skip("this systemd-analyze judges no files")
    assert judged.returncode == 0, judged.stdout + judged.stderr


@pytest.mark.parametrize("name", [LINK, INGEST])
def test_a_link_has_no_settings_that_a_server_lacks(name: str) -> None:
    """What confines them is the same, but for what a server needs more."""
    server, link = (UnitFile.read(FOLDER / each).sections["Service"] for each in (SERVER, name))
    confining = [key for key in link if key.startswith(("Protect", "Private", "Restrict", "System", "Cap", "Memory", "NoNew"))]
    missing = [key for key in confining if key not in server and not key.startswith("MemoryMax")]
    assert missing == []


def test_the_example_of_settings_and_what_it_proposes_is_taken_and_lies_where_the_service_may_write(tmp_path: Path) -> None:
    unit = UnitFile.read(FOLDER / SERVER)
    assert read_settings(str(FOLDER / "triolog.toml"), {}, {})["data_dirs"] == ("/var/lib/triolog",)
    assert unit.service("StateDirectory") == "triolog"
    proposed = tmp_path / "proposed.toml"
    lines = (FOLDER / "triolog.toml").read_text().splitlines()
    proposed.write_text("\n".join(line.removeprefix("#") for line in lines if not line.startswith("# ")))
    read = read_settings(str(proposed), {}, {})
    assert read.keys() >= {"max_memory_bytes", "audit_file"}
    assert Path(read["audit_file"]).parent == Path("/var/log") / unit.service("LogsDirectory")
    assert unit.service("LogsDirectoryMode") == "0750"


@pytest.mark.merge
def test_what_the_unit_starts_is_ready_is_reloaded_feeds_its_watchdog_and_stops(tmp_path: Path) -> None:
    unit = UnitFile.read(FOLDER / SERVER)
    config = tmp_path / "triolog.toml"
    config.write_text('native = "127.0.0.1:0"\ndurability = "group:50"\n')
    arguments = ["--config", str(config), "--data-dir", str(tmp_path / "data")]
    assert unit.command()[1:] == ["serve", "--config", CONFIG]
    with StandInSupervisor(tmp_path, arguments, watchdog_s=float(unit.service("WatchdogSec"))) as supervisor:
        server = supervisor.start()
        assert unit.service("Type") == "notify"
        supervisor.await_line("READY=1")
        supervisor.await_line("WATCHDOG=1")
        reload = [part.replace("$MAINPID", str(server.pid)) for part in unit.command("ExecReload")]
        subprocess.run(reload, check=True)
        supervisor.await_line("RELOADING=1")
        supervisor.await_line("READY=1")
        server.process.send_signal(signal.SIGTERM)
        supervisor.await_line("STOPPING=1")
        assert server.wait_exit() == 0
        config.write_text("native = ")
        assert str(supervisor.start().wait_exit()) == unit.service("RestartPreventExitStatus")
    assert os.path.exists(tmp_path / "data" / ".kafka_cleanshutdown")


@pytest.mark.merge
def test_what_a_links_unit_starts_forwards_is_asked_where_it_says_is_reloaded_and_stops(tmp_path: Path) -> None:
    unit = UnitFile.read(FOLDER / LINK)
    assert unit.command()[1:] == ["forward", "--config", "/etc/triolog/forward/%i.toml"]
    assert unit.service("Type") == "exec"
    config, said = tmp_path / "link.toml", tmp_path / "said"
    assert unit.service("RuntimeDirectory") == "triolog-forward"
    runtime = tmp_path / "r"  # the path of a socket has its limit
    runtime.mkdir(int(unit.service("RuntimeDirectoryMode"), 8))
    assert unit.service("RuntimeDirectoryPreserve") == "yes"
    command = [*COMMAND, *unit.command()[1:-1], str(config)]
    variables = environment({"RUNTIME_DIRECTORY": str(runtime), "PASSWORD": "secret"})
    with forwarding() as pair, said.open("wb") as output:
        pair.source.create_topic(TOPIC)
        pair.append([b"a"])

        def write(delay_ms: int) -> None:
            config.write_text(
                f'server = "{pair.source.native}"\n[[forward]]\nname = "link"\nto = "{pair.upstream.bootstrap_servers}"\n'
                f'topics = ["{TOPIC}"]\nmax_delay_ms = {delay_ms}\n'
                '[forward.kafka]\n"ssl.key.password" = { variable = "PASSWORD" }\n'
            )

        write(20)
        with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
            try:
                until(
                    lambda: process.poll() is not None or (TOPIC in pair.upstream.topics() and pair.values() == [b"a"]),
                    "the record",
                )
                assert process.poll() is None, said.read_text()
                told = call("forward", "status", "--state-dir", str(runtime / "forward"), "--json")
                assert json.loads(told.stdout)["state"] == "running"
                write(30)
                subprocess.run([part.replace("$MAINPID", str(process.pid)) for part in unit.command("ExecReload")], check=True)
                until(lambda: "link link starts again: max_delay_ms" in said.read_text(), "the reload")
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
        config.write_text("[[forward]]")
        wrong = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert str(wrong.returncode) == unit.service("RestartPreventExitStatus")


@pytest.mark.merge
def test_the_unit_of_ingest_stores_lines_reports_where_its_comment_says_reloads_and_stops(tmp_path: Path) -> None:
    unit = UnitFile.read(FOLDER / INGEST)
    assert unit.command()[1:] == ["ingest", "mqtt", "--config", "/etc/triolog/ingest/%i.toml"]
    assert (unit.service("Type"), unit.service("RuntimeDirectory")) == ("exec", "triolog-ingest")
    config, output_file, lines = tmp_path / "link.toml", tmp_path / "output", tmp_path / "app.log"
    runtime = tmp_path / "r"  # the path of a socket has its limit
    runtime.mkdir(int(unit.service("RuntimeDirectoryMode"), 8))
    command = [*COMMAND, *unit.command()[1:-1], str(config)]
    variables = environment({"RUNTIME_DIRECTORY": str(runtime)})
    lines.write_text("a\n")
    with triolog.blocking.open(native=ANY_PORT, config=FOR_EVER) as server, output_file.open("wb") as output:

        def write(poll_ms: int) -> None:
            config.write_text(
                f'server = "{server.native}"\n[[ingest]]\nname = "link"\ntopic = "{TOPIC}"\n'
                f'files = ["{lines}"]\npoll_ms = {poll_ms}\n'
            )

        write(20)
        with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
            try:
                until(
                    lambda: process.poll() is not None or (TOPIC in server.topics() and server.log(TOPIC).fetch()), "the record"
                )
                assert process.poll() is None, output_file.read_text()
                status = call("ingest", "status", "--state-dir", str(runtime / "ingest"), "--json")
                assert json.loads(status.stdout)["state"] == "running"
                write(30)
                subprocess.run([part.replace("$MAINPID", str(process.pid)) for part in unit.command("ExecReload")], check=True)
                until(lambda: "link link starts again: poll_ms" in output_file.read_text(), "the reload")
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
    config.write_text("[[ingest]]")
    wrong = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert str(wrong.returncode) == unit.service("RestartPreventExitStatus")


_SECTION: Final = re.compile(r"\[(\w+)\]")
_SETTING: Final = re.compile(r"(\w+)=(.*)")


@attrs.frozen
class UnitFile:
    """Values by section and key, in order."""

    sections: Mapping[str, Mapping[str, list[str]]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises AssertionError for a line that is none of a unit's."""
        sections: dict[str, dict[str, list[str]]] = {}
        section: dict[str, list[str]] | None = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line or line[0] in "#;":
                continue
            if found := _SECTION.fullmatch(line):
                section = sections.setdefault(found[1], {})
                continue
            setting = _SETTING.fullmatch(line)
            assert setting is not None, f"{path}:{number}: {line!r} is no setting"
            assert section is not None, f"{path}:{number}: {line!r} is in no section"
            section.setdefault(setting[1], []).append(setting[2])
        return cls(sections)

    def service(self, key: str) -> str:
        """The one value of a key of [Service]."""
        [value] = self.sections["Service"][key]
        return value

    def command(self, key: str = "ExecStart") -> list[str]:
        return shlex.split(self.service(key))
