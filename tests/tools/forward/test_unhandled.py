"""An unhandled exception of one link: it retries, or fails alone. The other links of its process continue."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.tools.forward.errors import LinkStoppedError
from triolog.tools.forward.link import Claims, Link
from triolog.tools.forward.memory import Wishes
from triolog.tools.forward.progress import LinkState
from triolog.tools.forward.settings.forward_settings import read_link


class Source:
    """Raises each of the errors when it is asked what node it is."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.is_closed = False

    def node(self) -> str:
        raise self.errors.pop(0)

    def topics(self) -> Any:
        raise self.errors.pop(0)

    def close(self) -> None:
        self.is_closed = True


def link_of(open_source: Any) -> Link:
    table = {"name": "link", "to": "127.0.0.1:1", "topics": ["t"]}
    return Link(read_link("the test", table), None, open_source, Wishes(), Claims())


def test_a_link_retries_after_an_unhandled_exception(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("triolog.tools.forward.pacing.FIRST_PAUSE_MS", 1)
    monkeypatch.setattr(Link, "_look", lambda *_: None)
    source = Source(ZeroDivisionError(), KeyError(), LinkStoppedError("done"))
    link = link_of(lambda: source)
    link.run()
    assert (str(link.error), source.errors, source.is_closed) == ("done", [], True)
    assert caplog.text.count("unhandled exception: link=link; the link retries") == 2


def test_a_link_whose_run_fails_is_the_only_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Source:
        raise ZeroDivisionError

    link = link_of(broken)
    link.run()
    assert link.progress.state is LinkState.FAILED
    assert "unhandled exception (ZeroDivisionError())" in str(link.error)
    assert "link=link has failed" in caplog.text
