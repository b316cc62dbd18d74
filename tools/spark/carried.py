"""Objects that Spark carries to executors: an executor without triolog raises an error that says what to do.

Spark pickles readers, writers and functions by reference, so an executor without their package would show the stack of pickle
and "No module named ...". `load` is pickled by value. It loads the object itself, and needs nothing but Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pyspark import cloudpickle

ADVICE: Final = (
    "Install triolog for that interpreter on every executor, or send an archive that `triolog spark pack` writes: "
    "docs/spark.md, On a cluster"
)


def load(data: bytes, advice: str) -> Any:
    """Load a carried object or function. Raises ImportError, in one line, for a package that is missing here."""
    import os
    import pickle
    import sys

    try:
        found, state = pickle.loads(data)
    except ImportError as exc:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # as `one_line` does
        reason = f"has no package {exc.name}" if isinstance(exc, ModuleNotFoundError) else f"cannot load it: {exc}"
        raise ImportError(f"{sys.executable} {reason}. {advice}", name=exc.name) from None
    if state is None:
        return found
    made = found.__new__(found)
    made.__dict__.update(state)
    return made


class Carried:
    """Base of an object that Spark pickles to executors. Its state is its `__dict__`."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return load, (_dumps((type(self), self.__dict__)), ADVICE)


A = TypeVar("A")
R = TypeVar("R")


def carried(function: Callable[[A], R]) -> Callable[[A], R]:
    """Return the function as Spark may pickle it to executors."""
    data = _dumps((function, None))
    return lambda argument: load(data, ADVICE)(argument)


def _dumps(value: object) -> bytes:
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
