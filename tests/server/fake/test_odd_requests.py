"""What means nothing to the control port is refused with the reason: no odd number, path or body is a bug of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.server.fake.faults.rules import RuleError
from triolog.server.fake.serving import check_rules

from tests.support.control_port import PATIENCE_S, Control, started
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder

NUMBERS: Final = ("1e999", "-1e999", "NaN", "1e308", str(2**63), str(-(2**63)), "9" * 4000, '"x"', "[]", "{}", "true", "-5")
PLACES: Final = (
    ("/clock/advance", '{"seconds": %s}'),
    ("/faults", '{"api": "Produce", "error": "NONE", "times": %s}'),
    ("/faults", '{"api": "Produce", "delay_ms": %s}'),
    ("/faults", '{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "probability": %s}'),
    ("/disk-faults", '{"effect": "delay", "delay_ms": %s}'),
    ("/disk-faults", '{"effect": "error", "path": %s}'),
    ("/topics", '{"name": "t", "partitions": %s}'),
    ("/topics/t/records", '{"partition": %s, "records": ["x"]}'),
    ("/topics/t/records", '{"records": [{"value": "x", "timestamp_ms": %s}]}'),
    ("/topics/t/records", '{"records": %s}'),
    ("/topics/t/wait", '{"count": 0, "timeout_ms": %s}'),
    ("/topics/t/compact", '{"partition": %s}'),
    ("/requests/wait", '{"count": 1, "timeout_ms": 1, "last": %s}'),
    ("/leaders", '{"topic": "t", "partition": %s, "node": 1}'),
    ("/leaders", '{"topic": "t", "partition": 0, "node": %s}'),
    ("/coordinators", '{"name": "g", "node": %s}'),
    ("/nodes/99999999999999999999999/down", "{}"),
    ("/faults/99999999999999999999999/release", "{}"),
    ("/disk-faults", '{"effect": "error", "path": "(((("}'),
    ("/disk-faults", '{"effect": "error", "path": "' + "[" * 5000 + '"}'),
    ("/snapshot", '{"path": %s}'),
)
BODIES: Final = (b"[" * 500_000, b'{"a":' * 100_000, b"\xff" * 1000, b'{"api":"Produce","x":' + b"9" * 400_000 + b"}", b"null")


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Iterator[Control]:
    with ServerFolder(tmp_path_factory.mktemp("control"), command=server_forker) as folder:
        server, control = started(folder, "--control", "127.0.0.1:0")
        control.do("POST", "/topics", {"name": "t"})
        yield control
        assert server.stop() == 0, server.stderr()
        assert "Traceback" not in server.stderr()


def post(control: Control, path: str, body: bytes) -> tuple[int, Any]:
    host, _, port = control.ready["control"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_odd_values_are_refused_with_the_reason(control: Control, tmp_path: Path) -> None:
    wrong = []
    for path, text in PLACES:
        for value in NUMBERS if "%s" in text else ("",):
            status, told = post(control, path, (text.replace("%s", value)).encode())
            if status not in (200, 400, 404, 408, 409, 422) or (status != 200 and not told.get("message")):
                wrong.append((path, value[:20], status, told))
            control.do("DELETE", "/disk-faults")
            control.do("DELETE", "/faults")
    assert wrong == []
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    for place in (tmp_path / "there", tmp_path / "there" / "file", Path("/proc/nowhere"), "/" + "x" * 5000, "a\0b"):
        status, told = post(control, "/snapshot", json.dumps({"path": str(place)}).encode())
        assert (status, bool(told["message"])) == (400, True), place


@pytest.mark.parametrize("text", ["[" * 20_000, "&a [*a]", "faults: [{times: " + "9" * 100_000 + "}]", "\xff"])
def test_odd_files_of_rules_are_refused_with_the_reason(text: str, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(text, encoding="latin-1")
    with pytest.raises(RuleError, match="rules"):
        check_rules(str(tmp_path / "rules"))


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_odd_bodies_are_refused_with_the_reason(control: Control, body: bytes) -> None:
    status, told = post(control, "/faults", body)
    assert (status, bool(told["message"])) == (400, True)
