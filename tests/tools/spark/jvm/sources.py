"""The modules that Spark looks for, on the path of workers as an installed wheel has them: a clone has no folders there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def sources_as_installed(folder: Path) -> Iterator[None]:
    """The modules that Spark looks for are folders on the path of its workers, as they are where the wheel is installed."""
    from triolog.tools import spark

    folder.mkdir()
    for name in ("pyspark_triolog", "pyspark_triolog_segments"):
        (folder / name).symlink_to(Path(spark.__file__).parent / "data_sources" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.syspath_prepend(folder)
        yield
