"""A page of documentation, followed as a reader follows it: files are written, commands run, what they print is compared.

Three kinds of fenced blocks are looked at, from the top down:

| fence | what the reader does |
|---|---|
| ```` ```python title="NAME" ````, or another language with a title | writes the file NAME |
| ```` ```python ```` | runs the program as it stands |
| ```` ```console ```` | types what is behind `$ ` (`> `: goes on), sees the lines below; `^C` ends the server |

`...` in what is to be seen stands for anything, alone on a line for any lines. A `triolog serve`, a console, a forwarder
and a command with `&` run until `^C` or until the page ends. Pages name the ports that a reader would use; here the system
chooses, and text is changed both ways. A block that this reader does not know has its reason in `prepared_pages`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from tests.support.server_process import DEADLINE_S, POLL_S, ServerProcess, environment

BLOCK: Final = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ROOT: Final = Path(__file__).resolve().parents[2]
RETRIED: Final = re.compile(r"^%4\|.*\|GETPID\|.*: retrying\n", re.MULTILINE)
"""A log line of librdkafka, when its handle of the bootstrap address ends just as it requests a producer id."""
COMMAND_DEADLINE_S: Final = 10 * DEADLINE_S
"""Spark starts a JVM."""
MIRROR_DIR: Final = "TRIOLOG_MIRROR_DIR"
INSTALLED: Final = ".installed"
"""A folder on the path with the modules that Spark looks for by name: it finds them in a wheel, not in an editable install."""
STAYS: Final = re.compile(r"triolog (?:console|forward (?:--to|--config \S+$))(?!.* --drain)|.* &$")
"""Commands that run until the page ends."""
PROGRESSING: Final = ("triolog forward status", "triolog mirror", "triolog groups describe baristas")
"""Commands that show the progress of another program: a reader who is too early looks again."""
NOT_A_READERS: Final = ("randomly", "asyncio", "trio", "hypothesispytest", "timeout")
"""Plug-ins of this suite: they change what pytest prints, and importing them takes 0.3 s in each run of it."""
URL: Final = re.compile(r"http://([\d.:]+)/")
ADDRESSES: Final = {
    "native": "127.0.0.1:9095",
    "kafka": "127.0.0.1:9092",
    "control": "127.0.0.1:4003",
    "http": "127.0.0.1:8082",
}
"""By name in the ready file, what pages say."""


@attrs.frozen
class Block:
    """A fenced block: its language, the file that it is (None: no file) and the line of the page on which it begins."""

    language: str
    title: str | None
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are written in a language."""
    return [Block(found[1], found[2], found[3], page.count("\n", 0, found.start()) + 1) for found in BLOCK.finditer(page)]


def commands(console: str) -> list[tuple[str, str]]:
    """Of a `console` block: each command, and what is seen after it."""
    typed: list[tuple[list[str], list[str]]] = []
    for line in console.splitlines():
        if line.startswith("$ ") or line == "^C":
            typed.append(([line.removeprefix("$ ")], []))
        elif line.startswith("> ") and not typed[-1][1]:
            typed[-1][0].append(line.removeprefix("> "))
        else:
            typed[-1][1].append(line)
    return [("\n".join(command), "\n".join(seen)) for command, seen in typed]


def is_seen(wanted: str, printed: str) -> bool:
    """Whether a command printed what the page shows; space at the ends of lines and empty lines at both ends do not count."""
    wanted, printed = ("\n".join(line.rstrip() for line in text.splitlines()).strip("\n") for text in (wanted, printed))
    pattern = re.escape(wanted).replace(re.escape("\n...\n"), r"\n(?s:.*\n)?").replace(re.escape("..."), r"(?s:.*)")
    return re.fullmatch(pattern, printed) is not None


@attrs.define(eq=False)
class Reader:
    """Follows one page in a folder of its own. Leaving the block ends a server that still runs."""

    folder: Path
    jvm_options: str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    """Of Spark's JVM, where the page has one."""
    programs: Path = Path(sysconfig.get_path("scripts"))
    """The folder of `triolog` and `python`."""
    places: dict[str, str] = attrs.field(factory=dict)
    """By the words of pages: addresses and directories here."""
    is_seen: Callable[[str, str], bool] = is_seen
    _watched: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    _server: ServerProcess | None = None
    _addresses: dict[str, str] = attrs.field(factory=dict)
    """By what pages say, where the server listens."""

    def __enter__(self) -> Self:
        (self.folder / INSTALLED).mkdir()
        for path in (ROOT / "tools" / "spark" / "data_sources").glob("pyspark_*"):
            (self.folder / INSTALLED / path.name).symlink_to(path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for program in self._watched:
            program.kill()
            program.wait()
        if self._server is not None:
            self._server.__exit__(kind, error, traceback)

    def follow(self, page: str) -> int:
        """Do what the page says and compare; answers how many programs and commands that were. Raises AssertionError."""
        count = 0
        for block in blocks(page):
            if block.title is not None:
                text = self._really(block.text).replace(ADDRESSES["http"], "127.0.0.1:0")
                (self.folder / block.title).write_text(text, encoding="utf-8")
            elif block.language == "python":
                run = self._run([str(self.programs / "python"), "-W", "error", "-c", self._really(block.text)])
                assert run.returncode == 0, f"the program of line {block.line} ends with {run.returncode}:\n{run.stdout}"
                assert run.stdout, f"the program of line {block.line} says nothing"
                count += 1
            elif block.language == "console":
                for command, seen in commands(block.text):
                    self._type(command, seen)
                    count += 1
        return count

    def _type(self, command: str, seen: str) -> None:
        if command == "^C" and self._watched:
            self._watched[-1].send_signal(signal.SIGINT)
            self._watched.pop().wait()
        elif command == "^C":
            assert self._server is not None
            assert self._server.stop() == 0, self._server.stderr()
            self._server, self._addresses = None, {}
        elif command.split()[:2] == ["triolog", "serve"]:
            self._serve(self._really(command).split()[2:] or ["--kafka", ADDRESSES["kafka"]])
        elif STAYS.match(command):
            self._watch(command, seen)
        else:
            deadline = time.monotonic() + (DEADLINE_S if command in PROGRESSING else 0)
            while True:
                printed = self._as_said(self._run(["bash", "-c", self._really(command)]).stdout)
                if self.is_seen(seen, printed) or time.monotonic() > deadline:
                    break
            assert self.is_seen(seen, printed), f"{command}\nprints\n{printed}\nand the page says\n{seen}"

    def _serve(self, arguments: list[str]) -> None:
        assert self._server is None, "another server runs"
        for option in ("--native", "--kafka", "--metrics", "--control", "--console"):
            if option in arguments:
                arguments[arguments.index(option) + 1] = "127.0.0.1:0"
        if "--ready-file" in arguments:  # the reader has one of its own
            del arguments[(at := arguments.index("--ready-file")) : at + 2]
        on_any_port = () if "--native" in arguments else ("--native", "127.0.0.1:0")
        command = (str(self.programs / "triolog"),)
        links = {MIRROR_DIR: str(self.folder / ".mirror")}
        spawned = ServerProcess.spawn(
            self.folder, [*arguments, *on_any_port], name=".server", command=command, extra_environment=links
        )
        self._server = spawned.wait_ready()
        ready = json.loads(self._server.ready_file.read_text())
        self._addresses = {ADDRESSES[name]: address for name, address in ready.items() if name in ADDRESSES}

    def _watch(self, command: str, seen: str) -> None:
        """A program that stays until the page ends: its first lines are compared."""
        output = self.folder / ".output"
        with output.open("wb") as stream:
            arguments = shlex.split(self._really(command).removesuffix(" &").replace("127.0.0.1:8080", "127.0.0.1:0"))
            program = subprocess.Popen(
                arguments, cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
        self._watched.append(program)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            printed = output.read_text()
            if (here := URL.search(printed)) and (said := URL.search(seen)):
                self.places[said[1]] = here[1]
            if self.is_seen(seen, "\n".join(self._as_said(printed).splitlines()[: len(seen.splitlines())])):
                return
            assert program.poll() is None, f"{command}\nends and prints\n{printed}\nand the page says\n{seen}"
            assert time.monotonic() < deadline, f"{command}\nprints\n{printed}\nand the page says\n{seen}"
            time.sleep(POLL_S)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        variables = {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "TZ": "UTC",
            "COLUMNS": "80",
            "PYTHONPATH": os.pathsep.join([str(self.folder / INSTALLED), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "LC_ALL": "C.UTF-8",
            "TRIOLOG_FORWARD_DIR": str(self.folder / ".forward"),
            MIRROR_DIR: str(self.folder / ".mirror"),
            "SPARK_SUBMIT_OPTS": self.jvm_options,
            "PYTEST_ADDOPTS": " ".join(f"-p no:{plugin}" for plugin in NOT_A_READERS),
        }
        if ADDRESSES["native"] in self._addresses:
            variables["TRIOLOG_SERVER"] = self._addresses[ADDRESSES["native"]]
        return environment(variables)

    def _really(self, text: str) -> str:
        """The text with the addresses of the server in place of those that the page says."""
        for said, address in self._addresses.items():
            text = text.replace(said, address).replace(said.replace("127.0.0.1", "localhost"), address)
        for said, place in self.places.items():
            text = text.replace(said, place)
        return text

    def _as_said(self, printed: str) -> str:
        for said, here in (*self._addresses.items(), *self.places.items()):
            printed = printed.replace(here, said)
        return RETRIED.sub("", printed)
