"""Client processes of a run: started, told what to do, killed, stopped for a while, started again under the next number."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import attrs

from tests.clients import external_programs
from tests.soak.clients.worker import Task

ROOT: Final = Path(__file__).resolve().parents[2]
ENDS_WITHIN_S: Final = 60.0
LOOK_S: Final = 0.5
BUSY_BYTES: Final = 5000
"""Of notes: who has written so much does what it is to do."""


@attrs.define(eq=False)
class ClientProcess:
    """One life of one process. Leaves its notes behind, and what it wrote to standard error."""

    task: Task
    process: subprocess.Popen[bytes]
    stderr: Path
    was_killed: bool = False
    """By us: that it is gone is no failure."""
    _read: int = 0
    _done: int = 0

    @classmethod
    def start(cls, command: Sequence[str], task: Task, folder: Path) -> ClientProcess:
        stderr = folder / f"{task.name}-{task.life}.stderr"
        with stderr.open("wb") as file:
            process = subprocess.Popen(
                [*command, task.to_json()], cwd=ROOT, stdin=subprocess.PIPE, stdout=file, stderr=file, env=_environment()
            )
        return cls(task, process, stderr)

    @property
    def history(self) -> Path:
        return Path(self.task.history)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def failure(self) -> str:
        """What went wrong with one that has ended; nothing for one that was killed or told to end."""
        code = self.process.poll()
        return (
            ""
            if code in (None, 0) or self.was_killed
            else f"{self.task.name}/{self.task.life} ended with {code}: {self.wrote()}"
        )

    def wrote(self) -> str:
        return self.stderr.read_text(errors="replace")[-4000:]

    def tell(self, order: str) -> None:
        stdin: IO[bytes] | None = self.process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone, or was closed for that
            stdin.write(f"{order}\n".encode())
            stdin.flush()

    def kill(self) -> None:
        self.was_killed = True
        self.process.kill()
        self.close()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Wait for its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(ENDS_WITHIN_S)

    def written_bytes(self) -> int:
        """Of its notes."""
        return self.history.stat().st_size if self.history.exists() else 0

    def is_quiet(self) -> bool:
        """Whether all of its roles that send something are done, as it has noted."""
        sending = {number for number, role in enumerate(self.task.roles) if role["role"] in ("feed", "move", "look")}
        if not self.history.exists():
            return False
        with self.history.open("rb") as file:
            file.seek(self._read)
            written = file.read()
        self._read += len(written)
        self._done += written.count(b'"do":"is done"')
        return self._done >= len(sending)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)


def _environment() -> dict[str, str]:
    """One thread for what has many, so that the clients of a run leave room for each other."""
    return {**os.environ, "GOMAXPROCS": "1", "PYTHONWARNINGS": "ignore"}


@attrs.define(eq=False)
class Clients:
    """All processes of a run, by name the one that lives now. Owner: the driver."""

    folder: Path
    commands: Mapping[str, Sequence[str]]
    """Of each family."""
    families: dict[str, str] = attrs.field(factory=dict)
    running: dict[str, ClientProcess] = attrs.field(factory=dict)
    ended: list[ClientProcess] = attrs.field(factory=list)
    failures: list[str] = attrs.field(factory=list)

    def start(self, family: str, task: Task) -> None:
        self.families[task.name] = family
        if (before := self.running.pop(task.name, None)) is not None:
            self.ended.append(before)
        self.running[task.name] = ClientProcess.start(self.commands[family], task, self.folder)

    def start_again(self, name: str) -> None:
        """The next life of one that has ended, or of one whose present life goes on beside it."""
        before = self.running[name].task
        life = before.life + 1
        self.start(self.families[name], attrs.evolve(before, life=life, history=str(self.folder / f"{name}-{life}.jsonl")))

    def look(self) -> None:
        """Start again who has ended by himself; it is a failure where nobody had told him to."""
        for name, client in list(self.running.items()):
            if not client.is_running:
                if client.failure:
                    self.failures.append(client.failure)
                client.close()
                self.start_again(name)

    def all(self) -> list[ClientProcess]:
        return [*self.ended, *self.running.values()]

    def tell(self, order: str) -> None:
        """Everybody, also those that were stopped."""
        for client in self.all():
            client.go_on()
            client.tell(order)

    def have_group(self, group: str) -> bool:
        """Whether somebody is a member of it."""
        return any(role.get("group") == group for client in self.running.values() for role in client.task.roles)

    def wait_busy(self, deadline_s: float) -> None:
        """Until everybody has done something; whoever does not is told as a failure."""
        until = time.monotonic() + deadline_s
        while idle := sorted(name for name, client in self.running.items() if client.written_bytes() < BUSY_BYTES):
            if time.monotonic() > until:
                self.failures.append(f"{', '.join(idle)} do nothing within {deadline_s:g} s")
                return
            time.sleep(LOOK_S)

    def wait_quiet(self, deadline_s: float) -> list[str]:
        """Until nobody sends any more; the names of those that still do."""
        until = time.monotonic() + deadline_s
        left = dict(self.running)
        while left and time.monotonic() < until:
            left = {name: client for name, client in left.items() if client.is_running and not client.is_quiet()}
            time.sleep(LOOK_S if left else 0)
        return sorted(left)

    def end(self) -> None:
        """Tell everybody, and wait; who does not listen is killed, which is a failure."""
        self.tell("over")
        for client in self.all():
            try:
                client.process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.failures.append(f"{client.task.name}/{client.task.life} does not end: {client.wrote()}")
                client.kill()
            if client.failure and client in self.running.values():
                self.failures.append(client.failure)
            client.close()

    def kill(self) -> None:
        """At once: the run has failed."""
        for client in self.all():
            client.go_on()
            client.kill()

    def one(self, rng: random.Random) -> ClientProcess:
        return self.running[rng.choice(sorted(self.running))]


PYTHON_MODULES: Final = {
    "confluent": "confluent",
    "kafka-python": "kafka_python",
    "aiokafka": "aio_kafka",
    "native": "native",
    "blocking": "blocking",
}
FAMILIES: Final = (*PYTHON_MODULES, "franz-go", "java")


def command_of(family: str) -> Sequence[str]:
    """What its task is the last argument of. Raises ProgramUnavailableError where a language is not here."""
    match family:
        case "franz-go":
            return external_programs.soaking_go()
        case "java":
            return external_programs.soaking_java()
        case _:
            return sys.executable, "-m", f"tests.soak.clients.{PYTHON_MODULES[family]}"


def installed(families: Sequence[str] = FAMILIES) -> dict[str, Sequence[str]]:
    """The commands of those that are here."""
    commands = {}
    for family in families:
        try:
            commands[family] = command_of(family)
        except external_programs.ProgramUnavailableError:
            continue
    return commands
