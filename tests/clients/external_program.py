"""A program that drives a client of another language, asked with a line of JSON, answering with a line of JSON."""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import attrs

from tests.clients.driver import DEADLINE_S

ASK_DEADLINE_S: Final = 2 * DEADLINE_S
"""The programs give up by themselves after half of the first minute; this is for those that hang."""
READ_BYTES: Final = 1 << 20
QUESTION_SHOWN: Final = 500
"""Characters of a question that got no answer."""


class ExternalError(Exception):
    """What the client said."""


@attrs.define(eq=False)
class ExternalProgram:
    """A running program. Owner: whoever started it. One thread asks."""

    name: str
    _process: subprocess.Popen[bytes]
    _ids: Iterator[int] = attrs.field(factory=itertools.count)
    _unread: bytearray = attrs.field(factory=bytearray)

    @classmethod
    @contextmanager
    def running(cls, name: str, command: Sequence[str]) -> Iterator[Self]:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            try:
                yield cls(name, process)
                process.stdin.close()
                process.wait(DEADLINE_S)
            finally:
                process.kill()

    def ask(self, op: str, **arguments: Any) -> Any:
        """One operation, to its end. Raises ExternalError with what the client says; a program that says nothing in time is
        ended, so that its answer is not taken for that of the next question."""
        asked = next(self._ids)
        question = json.dumps({"id": asked, "op": op, **arguments})
        try:
            self._process.stdin.write(question.encode() + b"\n")
            line = self._line(ASK_DEADLINE_S)
        except BrokenPipeError:
            line = b""
        except TimeoutError:
            self._process.kill()
            raise TimeoutError(f"{self.name} did not answer within {ASK_DEADLINE_S:g} s: {question[:QUESTION_SHOWN]}") from None
        assert line, f"{self.name} ended with {self._process.wait(DEADLINE_S)} at {op}"
        answer = json.loads(line)
        assert answer["id"] == asked
        if answer.get("error"):
            raise ExternalError(f"{self.name}: {op}: {answer['error']}")
        return answer.get("result")

    def _line(self, deadline_s: float) -> bytes:
        """The next line of the program, b"" when it has ended. Raises TimeoutError."""
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + deadline_s
        while (end := self._unread.find(b"\n")) < 0:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            more = os.read(output, READ_BYTES)
            if not more:
                return b""
            self._unread += more
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        return line
