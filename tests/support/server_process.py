"""Real `triolog serve` processes: start, wait until ready, kill, restart, stop; nothing is left behind.

`ServerProcess` is one process, `ServerFolder` the directory that several of them use one after the other. It is the command, or
where a `ServerForker` stands for the command, a fork of a process that has loaded what the command loads. Standard error
goes to a file, so a server never waits for a reader; a deadline that passes, and a test that fails, shows it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import attrs

from tests.support.forked_servers import ForkedProcess, ServerForker

DEADLINE_S: Final = 60.0
"""For anything that a healthy server does within a second, on a machine that is busy with other things."""
POLL_S: Final = 0.002
COMMAND: Final = (str(Path(sysconfig.get_path("scripts"), "triolog")),)
ON_ANY_PORT: Final = ("--native", "127.0.0.1:0")


class Address(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without what would configure a server. A former name of triolog is an error in the process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIOLOG_")}
    return {**kept, "PYTHONWARNINGS": "error:triolog:DeprecationWarning", **(extra or {})}


def memory_bytes(pid: int, field: str = "VmRSS") -> int:
    """Resident memory of a process now (VmRSS) or at its highest (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {field}")


@attrs.define(eq=False)
class ServerProcess:
    """A process and the files it answers with. Leaving the block kills it and waits for it."""

    process: subprocess.Popen[bytes] | ForkedProcess
    ready_file: Path
    stderr_file: Path
    _address: Address | None = None

    @classmethod
    def spawn(
        cls,
        folder: Path,
        arguments: Sequence[str],
        *,
        name: str = "server",
        command: Sequence[str] | ServerForker = COMMAND,
        extra_environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Start `triolog serve ARGUMENTS` in `folder`; it is not awaited."""
        ready_file, stderr_file = folder / f"{name}.ready", folder / f"{name}.stderr"
        ready_file.unlink(missing_ok=True)
        serve = ["serve", "--ready-file", str(ready_file), *arguments]
        variables = environment(extra_environment)
        with stderr_file.open("wb") as stderr:
            if isinstance(command, ServerForker):
                forked = command.fork(serve, cwd=folder, environment=variables, output=stderr_file)
                return cls(forked, ready_file, stderr_file)
            process = subprocess.Popen(
                [*command, *serve], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        return cls(process, ready_file, stderr_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"server {self.pid}, exit code {self.process.returncode}, wrote:\n{self.stderr()}")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> Address:
        """Where it listens; waits until it does."""
        if self._address is None:
            self.wait_ready()
        assert self._address is not None
        return self._address

    def stderr(self) -> str:
        return self.stderr_file.read_text(errors="replace")

    def wait_ready(self, deadline_s: float = DEADLINE_S) -> Self:
        """Wait for the ready file. A process that ends first is an error that shows what it wrote."""
        self._wait_for(self.ready_file.exists, "the ready file", deadline_s)
        self._address = self.address_of("native")
        return self

    def address_of(self, listener: str) -> Address:
        """The address of a listener in the ready file, which must exist: native, kafka, metrics or control."""
        return Address.parse(json.loads(self.ready_file.read_text())[listener])

    def wait_locked(self, data_dir: Path, deadline_s: float = DEADLINE_S) -> Self:
        """Wait until it holds the lock of a log directory: it begins to recover then."""
        holder = f"process {self.pid}\n"
        lock = data_dir / ".lock"
        self._wait_for(lambda: lock.exists() and lock.read_text().endswith(holder), "the lock of its directory", deadline_s)
        return self

    def wait_stderr(self, text: str, deadline_s: float = DEADLINE_S) -> Self:
        """Wait until it has logged `text`."""
        self._wait_for(lambda: text in self.stderr(), f"{text!r} in its log", deadline_s)
        return self

    def wait_sockets(self, count: int, deadline_s: float = DEADLINE_S) -> Self:
        """Wait until it has so many sockets: a connection is made before it is accepted."""
        self._wait_for(lambda: self.open_sockets() >= count, f"the socket number {count}", deadline_s)
        return self

    def wait_room(self, device: Path, free_bytes: int, deadline_s: float = DEADLINE_S) -> Self:
        """Wait until so much is free on a device: the guard of its reserve gives nothing more up then."""

        def is_there() -> bool:
            found = os.statvfs(device)
            return found.f_bavail * found.f_frsize >= free_bytes

        self._wait_for(is_there, f"{free_bytes} free bytes on {device}", deadline_s)
        return self

    def wait_exit(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for the end of the process and answer its exit code."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(f"the server did not end within {deadline_s} s\n{self.stderr()}") from exc

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """An orderly stop, awaited; answers the exit code."""
        self.terminate()
        return self.wait_exit()

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken the process apart: its locks and ports are free afterwards."""
        self.process.kill()
        self.process.wait()

    def open_files(self) -> list[str]:
        """What its descriptors point at."""
        folder = f"/proc/{self.pid}/fd"
        targets = []
        for name in os.listdir(folder):
            try:
                targets.append(os.readlink(f"{folder}/{name}"))
            except FileNotFoundError:
                continue
        return targets

    def open_sockets(self) -> int:
        return sum(target.startswith("socket:") for target in self.open_files())

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """Resident memory now (VmRSS) or at its highest (VmHWM)."""
        return memory_bytes(self.pid, field)

    def forget_peak_memory(self) -> None:
        """Let VmHWM start again from what is resident now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _wait_for(self, is_there: object, what: str, deadline_s: float) -> None:
        assert callable(is_there)
        deadline = time.monotonic() + deadline_s
        while not is_there():
            if self.process.poll() is not None and not is_there():
                raise AssertionError(
                    f"the server ended with {self.process.returncode} before {what} was there\n{self.stderr()}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} was not there within {deadline_s} s\n{self.stderr()}")
            time.sleep(POLL_S)


@attrs.define(eq=False)
class ServerFolder:
    """A directory in which servers run one after the other, on the same data. Leaving the block ends what still runs."""

    path: Path
    arguments: tuple[str, ...] = ()
    command: Sequence[str] | ServerForker = COMMAND
    data_dirs: tuple[str, ...] = ("data",)
    _servers: list[ServerProcess] = attrs.field(factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for server in self._servers:
            server.__exit__(kind, error, traceback)

    @property
    def data_dir(self) -> Path:
        return self.path / self.data_dirs[0]

    def spawn(self, *arguments: str, extra_environment: Mapping[str, str] | None = None) -> ServerProcess:
        """Start a server on the data; it is not awaited."""
        directories = [part for name in self.data_dirs for part in ("--data-dir", str(self.path / name))]
        server = ServerProcess.spawn(
            self.path,
            [*directories, *ON_ANY_PORT, *self.arguments, *arguments],
            name=f"server-{len(self._servers)}",
            command=self.command,
            extra_environment=extra_environment,
        )
        self._servers.append(server)
        return server

    def start(self, *arguments: str, extra_environment: Mapping[str, str] | None = None) -> ServerProcess:
        """Start a server on the data and wait until it accepts."""
        return self.spawn(*arguments, extra_environment=extra_environment).wait_ready()

    def wrote(self) -> str:
        """What all its servers wrote."""
        return "".join(f"--- server {server.pid}\n{server.stderr()}" for server in self._servers)


def python_command(prelude: str) -> tuple[str, ...]:
    """The `triolog` command in an interpreter that first runs `prelude`."""
    return (sys.executable, "-c", f"{prelude}\nfrom triolog.tools.cli.main import main\nmain(prog_name='triolog')")
