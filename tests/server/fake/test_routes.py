"""What a call of the control port takes, and what it refuses. What means nothing to the control port is refused with the
reason: no odd number, path or body is a bug of the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.server.config.broker_config import Address, BrokerConfig
from triolog.server.fake.api import ControlApi, answer
from triolog.server.fake.faults.rules import RuleError, Subject
from triolog.server.fake.life import Life
from triolog.server.fake.serving import check_rules
from triolog.server.listeners.http.access import HttpAccess, HttpRequest
from triolog.server.listeners.opening import Addresses

from tests.support.control_port import PATIENCE_S, Control, started
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder


@pytest.fixture
async def api(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[ControlApi]:
    config = BrokerConfig(data_dirs=(str(tmp_path),), native=Address("127.0.0.1", 0))
    life = Life(config, Addresses(Address("127.0.0.1", 0)), nursery)
    await life.start()
    yield ControlApi(life)
    await life.stop()
    life.close()


async def ask(api: ControlApi, method: str, path: str, body: object = None) -> tuple[int, Any]:
    path, _, query = path.partition("?")
    data = b"" if body is None else json.dumps(body).encode()
    told = await answer(api, HttpAccess(), HttpRequest(method, path, query, {"content-type": "application/json"}, data))
    return told.status, json.loads(told.body)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/topics", {"name": "t", "partition": 3}, 400, "partition: no such field. Use config, name, partitions"),
        ("POST", "/crash", {"torn": True}, 400, "torn: no such field"),
        ("GET", "/requests?client=a", None, 400, "client: no such field. Use after, answered, api, client_id, "),
        ("POST", "/requests/wait", {"times": 1}, 400, "times: no such field"),
        ("POST", "/requests/wait", {"api": "Produce", "timeout_ms": 1}, 408, "did not arrive"),
        ("GET", "/requests?answered=yes", None, 400, "answered is 'yes', expected true or false"),
        ("POST", "/topics/t/records", {"records": [{"valu": "v"}]}, 400, "valu: no such field of a record"),
        ("POST", "/topics/t/records", {"records": [{"headers": ["h"]}]}, 400, "a header is an object with a name, not 'h'"),
        ("POST", "/topics/t/records", {"records": [{"headers": [{"value": "v"}]}]}, 400, "a header is an object with a name"),
        ("POST", "/topics/t/records", {"records": [5]}, 400, "text or an object"),
        ("POST", "/topics/missing/records", {"records": ["v"]}, 422, "missing"),
        ("POST", "/topics", ["t"], 400, "the body is not an object"),
        ("POST", "/faults", {"api": "Produce"}, 400, "without an effect"),
        ("POST", "/faults", {"api": "Produse", "hold": True}, 400, "did you mean"),
        ("POST", "/faults", {"colour": "red"}, 400, "no such field"),
        ("GET", "/faults/7", None, 404, "there is no fault 7"),
        ("POST", "/disk-faults", {"effect": "melted"}, 400, "expected one of"),
        ("POST", "/disk-faults/99/release", None, 404, "disk fault 99"),
        ("GET", "/nowhere", None, 404, "no such call"),
        ("POST", "/advertised", {"address": "localhost"}, 400, "is not HOST:PORT"),
        ("POST", "/advertised", {"address": "localhost:0"}, 400, "expected the port that clients reach"),
        ("POST", "/advertised", {"address": "localhost:9092"}, 400, "no Kafka listener"),
        ("POST", "/clock/advance", {"seconds": -1}, 400, "forward"),
        ("POST", "/clock/advance", {}, 400, "expected a number"),
        ("POST", "/snapshot", {}, 400, "path is missing"),
        ("POST", "/topics/missing/discard", {}, 422, "missing"),
        ("POST", "/topics/missing/skip-offsets", {"count": 0}, 422, "count is 0, expected 1 to"),
        ("POST", "/topics/missing/lose-offsets", {"size": 1}, 400, "size: no such field. Use count, partition"),
        ("POST", "/topics/missing/old-format", {"records": "v"}, 400, "records is 'v', expected a list"),
        ("POST", "/groups/billing/commit", {"topic": "missing"}, 400, "offset is missing"),
        ("POST", "/groups/billing/commit", {"topic": "missing", "offset": 1}, 422, "missing"),
    ],
)
async def test_unknown_arguments_are_refused(
    api: ControlApi, method: str, path: str, body: object, status: int, message: str
) -> None:
    found, told = await ask(api, method, path, body)
    assert (found, message in told["message"]) == (status, True), told


async def test_a_record_that_was_read_can_be_sent_back(api: ControlApi) -> None:
    await ask(api, "POST", "/topics", {"name": "t"})
    headers = [{"name": "h", "value": "1"}, {"name": "none", "value": None}]
    await ask(api, "POST", "/topics/t/records", {"records": [{"key": "k", "value_base64": "/w==", "headers": headers}]})
    _, [record] = await ask(api, "GET", "/topics/t/records")
    assert (record["value_base64"], record["headers"]) == ("/w==", headers)
    assert await ask(api, "POST", "/topics/t/records", {"records": [record]}) == (200, {"base_offset": 1, "count": 1})
    _, [again] = await ask(api, "GET", "/topics/t/records?offset=1")
    assert again == {**record, "offset": 1}


async def test_odd_logs_are_made_and_say_their_offsets(api: ControlApi) -> None:
    for topic in ("t", "generated", "hole"):
        await ask(api, "POST", "/topics", {"name": topic, "partitions": 2})
    calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("skip-offsets", {"count": 3}, {"next_offset": 3}),
        ("empty-batch", {"count": 2}, {"base_offset": 3}),
        ("lose-offsets", {}, {"base_offset": 5}),
        ("old-format", {"records": ["a", "b"], "magic": 0}, {"base_offset": 6, "count": 2}),
        ("delete-records", {"before_offset": 7}, {"start_offset": 7}),
    ]
    for call, told, answered in calls:
        assert await ask(api, "POST", f"/topics/t/{call}", {"partition": 1, **told}) == (200, answered), call
    assert [record["offset"] for record in (await ask(api, "GET", "/topics/t/records"))[1]] == [7]
    told = {"count": 4, "value_bytes": 5, "seed": 1}
    assert await ask(api, "POST", "/topics/generated/generate", told) == (200, {"end_offsets": {"0": 4, "1": 4}})
    values = [
        record.get("value_base64") or record["value"] for record in (await ask(api, "GET", "/topics/generated/records"))[1]
    ]
    assert len(set(values)) == 8
    assert await ask(api, "POST", "/topics/hole/discard", {"partition": 0}) == (200, {})
    for number in range(2):
        await ask(api, "POST", "/topics/hole/records", {"partition": number, "records": ["v"]})
    assert [record["partition"] for record in (await ask(api, "GET", "/topics/hole/records"))[1]] == [1]
    assert (await ask(api, "GET", "/topics"))[1]["hole"] == {"0": 1, "1": 1}


async def test_an_offset_is_committed_for_a_group(api: ControlApi) -> None:
    await ask(api, "POST", "/topics", {"name": "t"})
    await ask(api, "POST", "/topics/t/records", {"records": ["a", "b", "c"]})
    status, told = await ask(api, "POST", "/groups/billing/commit", {"topic": "t", "offset": 1})
    assert (status, told["committed"], told["lag"]) == (200, [{"topic": "t", "partition": 0, "offset": 1}], 2)


async def test_requests_with_and_without_an_answer_are_told_apart(api: ControlApi) -> None:
    log = api.life.requests
    for number, subject in enumerate([Subject("Metadata", "a"), Subject("Fetch", "a")]):
        request = log.begin(0, 1, subject, 10)
        if not number:
            log.answered(request, ())
    assert [each["api"] for each in (await ask(api, "GET", "/requests?answered=true"))[1]] == ["Metadata"]
    assert [each["api"] for each in (await ask(api, "GET", "/requests?answered=false"))[1]] == ["Fetch"]
    assert [each["number"] for each in (await ask(api, "GET", "/requests?last=1"))[1]] == [2]
    assert len((await ask(api, "GET", "/requests?last=9"))[1]) == 2
    assert (await ask(api, "GET", "/requests?last=0"))[0] == 400


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
    ("/topics/t/skip-offsets", '{"count": %s}'),
    ("/topics/t/empty-batch", '{"count": %s}'),
    ("/topics/t/lose-offsets", '{"partition": %s}'),
    ("/topics/t/generate", '{"value_bytes": %s}'),
    ("/topics/t/generate", '{"seed": %s}'),
    ("/topics/t/delete-records", '{"before_offset": %s}'),
    ("/topics/t/old-format", '{"magic": %s, "records": ["x"]}'),
    ("/groups/g/commit", '{"topic": "t", "offset": %s}'),
    ("/requests/wait", '{"count": 1, "timeout_ms": 1, "last": %s}'),
    ("/leaders", '{"topic": "t", "partition": %s, "node": 1}'),
    ("/leaders", '{"topic": "t", "partition": 0, "node": %s}'),
    ("/coordinators", '{"name": "g", "node": %s}'),
    ("/advertised", '{"address": %s}'),
    ("/advertised", '{"address": "localhost:1", "node": %s}'),
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


@pytest.mark.merge
@pytest.mark.parametrize("text", ["[" * 20_000, "&a [*a]", "faults: [{times: " + "9" * 100_000 + "}]", "\xff"])
def test_odd_files_of_rules_are_refused_with_the_reason(text: str, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(text, encoding="latin-1")
    with pytest.raises(RuleError, match="rules"):
        check_rules(str(tmp_path / "rules"))


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_odd_bodies_are_refused_with_the_reason(control: Control, body: bytes) -> None:
    status, told = post(control, "/faults", body)
    assert (status, bool(told["message"])) == (400, True)
