"""One process of libFuzzer's: `python -m tests.fuzzing.search TARGET [its arguments]`. `__main__` starts it, libFuzzer ends it.

What counts as reached are branches of the target's own modules, and of the readers that the codecs compile while it runs.
Comparisons are not traced: that finds a constant sooner and makes everything twice as slow, and the seeds have the constants.
"""

from __future__ import annotations

import gc
import logging
import sys
import types
from collections.abc import Sequence
from typing import Any

import atheris
from triolog.protocol.schema.source import Source

from tests.fuzzing.target import Target, Watch
from tests.fuzzing.targets import TARGETS


def instrument(modules: Sequence[str]) -> int:
    """Count the branches of every function of these modules, and of what `Source` compiles from now on."""
    functions = [
        found
        for found in gc.get_objects()
        if isinstance(found, types.FunctionType) and (found.__module__ or "").startswith(tuple(modules))
    ]
    for function in functions:
        function.__code__ = _counted(function.__code__)
    made = Source.function

    def counted(self: Source, name: str, file: str) -> Any:
        function = made(self, name, file)
        function.__code__ = _counted(function.__code__)  # type: ignore[attr-defined]
        return function

    Source.function = counted  # type: ignore[method-assign]
    return len(functions)


def _counted(code: types.CodeType) -> types.CodeType:
    return atheris.patch_code(code, trace_dataflow=False)


def search(target: Target, arguments: list[str]) -> None:
    """Feed it what libFuzzer thinks of."""
    logging.disable()
    instrument(target.modules)
    watch = Watch(target)
    atheris.Setup([sys.argv[0], *arguments], lambda data: watch.feed(data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    search(TARGETS[sys.argv[1]], sys.argv[2:])
