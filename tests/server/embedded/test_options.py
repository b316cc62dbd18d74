"""The options of the three faces: written once, checked on each, and no port unless one is requested."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.server.embedded import OpenOptions, opening

from tests.server.embedded.drivers import on_every_face

FACES: Final = (triolog.open, triolog.aio.open, triolog.blocking.open)
PUBLIC: Final = (
    "server/embedded",
    "server/fake/views",
    "tools/arrow",
    "tools/client",
    "tools/pytest_plugin",
    "protocol/following.py",
    "triolog/__init__.py",
    "triolog/aio.py",
    "triolog/blocking.py",
)
ROOT: Final = Path(__file__).parent.parent.parent.parent


def test_the_options_are_those_that_open_accepts() -> None:
    accepted = {
        name: parameter.annotation
        for name, parameter in inspect.signature(opening.open).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert {name: each.__forward_arg__ for name, each in OpenOptions.__annotations__.items()} == accepted


def test_every_option_has_a_docstring() -> None:
    [body] = [node.body for node in ast.parse(inspect.getsource(OpenOptions)).body if isinstance(node, ast.ClassDef)]
    fields = [(each, after) for each, after in zip(body, [*body[1:], None], strict=True) if isinstance(each, ast.AnnAssign)]
    assert [ast.unparse(each) for each, after in fields if not isinstance(after, ast.Expr)] == []
    assert len(fields) == len(OpenOptions.__annotations__)


def test_each_face_shows_the_options_to_help() -> None:
    shown = [list(inspect.signature(face).parameters.values()) for face in FACES]
    assert shown[0] == shown[1] == shown[2]


def test_no_public_function_accepts_options_of_any_name() -> None:
    files = [path for place in PUBLIC for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))]
    loose = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in files
        for node in _public(ast.parse(path.read_text()).body)
        if node.args.kwarg is not None and ast.unparse(node.args.kwarg.annotation or ast.Constant(None)) == "Any"
    }
    assert loose == set()


def _public(body: list[ast.stmt]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods, without private ones and those inside functions."""
    found = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found += [each for node in body if isinstance(node, ast.ClassDef) for each in _public(node.body)]
    return [node for node in found if not node.name.startswith("_") or node.name == "__init__"]


@pytest.mark.parametrize("face", [triolog.aio.open, triolog.blocking.open])
def test_an_unknown_option_is_refused_with_the_nearest_one(face: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=re.escape("open() has no option 'topcis' (did you mean 'topics'?)")):
        face(topcis=["t"])


@on_every_face()
async def test_a_broker_opens_no_port_unless_one_is_requested(broker: Any) -> None:
    assert (broker.native, broker.kafka, broker.metrics) == (None, None, None)


@on_every_face(native="127.0.0.1:0", kafka="127.0.0.1:0")
async def test_a_broker_opens_the_ports_that_are_requested(broker: Any) -> None:
    assert broker.native.port > 0
    assert broker.kafka.port > 0
