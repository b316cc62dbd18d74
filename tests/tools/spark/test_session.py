"""What of `session()` needs no JVM; the rest is in `jvm/test_session.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.tools.spark import session


def test_sources_that_spark_cannot_find_by_itself_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in session.SOURCES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert session.unseen_sources() == []
