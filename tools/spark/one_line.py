"""Errors that Spark shows as one line.

Spark sends the stack of a Python worker together with an error. The stack tells a user nothing about a wrong option or a
missing topic. Spark leaves it out if SPARK_HIDE_TRACEBACK is set in the worker's environment
(pyspark.util.handle_worker_exception). A worker process ends after an error, so the variable affects no other error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...protocol.errors import TriologError

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def one_line() -> Iterator[None]:
    """Let errors of options, rows and the server leave the block without a stack, in a worker of Spark."""
    try:
        yield
    except (TriologError, ValueError):  # OptionError and RowError are ValueErrors
        if is_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def is_worker() -> bool:
    """Return whether this process is a Python worker of Spark, and not a driver."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
