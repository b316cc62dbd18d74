"""An application of Kafka Streams that counts words, in processes that a test starts, stops and kills."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from tests.clients.driver import DEADLINE_S

APPLICATION: Final = "word-count"
WORDS: Final = "words"
COUNTS: Final = "counts"
GUARANTEE: Final = "at_least_once"


@attrs.define(eq=False)
class WordCount:
    """One instance. Owner: the test, which leaves its block before the folder goes."""

    _process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        program: Sequence[str],
        servers: str,
        folder: Path,
        *,
        number: int = 0,
        name: str = APPLICATION,
        topics: tuple[str, str] = (WORDS, COUNTS),
    ) -> Self:
        """`number`: of the instance, which has a state directory and an endpoint of its own. `topics`: where words come from,
        and where counts go."""
        state = folder / f"state-{number}"
        arguments = (servers, name, str(state), GUARANTEE, f"instance-{number}:1", *topics)
        return cls(
            subprocess.Popen([*program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )

    def wait_running(self) -> None:
        """Until it has said that it runs, once more."""
        for line in self._process.stdout:
            if line.strip() == b"RUNNING":
                return
        raise AssertionError(f"the application has ended with {self._process.wait()}")

    def stop(self) -> None:
        """In order: it commits, and says that it leaves."""
        self._process.stdin.close()
        assert self._process.wait(DEADLINE_S) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()
        self._process.stdin.close()
        self._process.stdout.close()
