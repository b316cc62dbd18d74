"""Former names of the Python API: each works, warns, names the new one, and is in docs/upgrading.md."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.former import former_keywords
from triolog.protocol.native import messages as m
from triolog.protocol.types import AppendResult, TopicPartition
from triolog.server.embedded import BlockingBroker, aio, open_broker, options
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.client.connection import connect

from tests.support.server_process import environment

T: Final = "t"
PARTITION: Final = TopicPartition(T, 0)
FETCH: Final = m.FetchRequest((m.FetchPartition(*PARTITION, 0),))
TIMES: Final = m.OffsetsForTimesRequest((m.OffsetsForTimesPartition(*PARTITION, -2),))
EXPLAIN: Final = m.ExplainRequest((m.ExplainPartition(*PARTITION, 0),))
CREATE: Final = m.CreateTopicsRequest((m.NewTopic("new", 1),))
DELETE: Final = m.DeleteTopicsRequest(("new",))

REQUESTS: Final[dict[str, tuple[str, Callable[[Any], Any], type]]] = {
    "fetch(request)": ("call_fetch(request)", lambda client: client.fetch(FETCH), m.FetchResponse),
    "offsets_for_times(request)": ("call(request)", lambda client: client.offsets_for_times(TIMES), m.OffsetsForTimesResponse),
    "explain(request)": ("call(request)", lambda client: client.explain(EXPLAIN), m.ExplainResponse),
    "create_topics(request)": ("call(request)", lambda client: client.create_topics(CREATE), m.CreateTopicsResponse),
    "delete_topics(request)": ("call(request)", lambda client: client.delete_topics(DELETE), m.DeleteTopicsResponse),
}
"""Calls of a client: the new name, the call, and the response."""
VIEWS: Final[dict[str, tuple[str, Callable[[Any], Any], Any]]] = {
    "log.records()": ("log.fetch()", lambda log: log.records(0, offset=1), []),
    "log.produce(value)": ("log.append([value])", lambda log: log.produce("b", key="k"), 1),
    "log.produce_all(values)": ("log.append(values)", lambda log: log.produce_all(["c", b"d", None]), 1),
}
OTHERS: Final = {
    "open_broker()": "triolog.open()",
    "aio.open_broker()": "triolog.aio.open()",
    "BlockingBroker()": "triolog.blocking.open()",
    "connect(host=)": "connect(server)",
    "connect(address=)": "connect(server)",
    "BlockingClient(address=)": "BlockingClient(server)",
    "call(request, wait_ms=)": "call(request)",
    "end_offset": "last_offset + 1",
    "configs": "config",
    "alter_config(values=)": "alter_config(changes)",
    "alter_config(delete=)": "alter_config(deletes)",
}


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(native="127.0.0.1:0", topics=[T]) as running:
        running.append(T, [b"a"])
        yield running


def warned(new: str) -> Any:
    return pytest.warns(DeprecationWarning, match=f"^triolog: .* is a former name; use {re.escape(new)}$")


def address_of(broker: BlockingBroker) -> tuple[str, int]:
    assert broker.native is not None
    return broker.native.host, broker.native.port


@pytest.mark.parametrize("former", REQUESTS)
async def test_requests_of_both_clients(broker: BlockingBroker, former: str) -> None:
    new, call, kind = REQUESTS[former]
    with BlockingClient(address_of(broker)) as client, warned(new) as seen:
        assert isinstance(call(client), kind)
    assert [each.filename for each in seen] == [__file__]
    broker.delete_topic("new") if former.startswith("create") else None
    async with connect(address_of(broker)) as client:
        with warned(new) as seen:
            assert isinstance(await call(client), kind)
    assert [each.filename for each in seen] == [__file__]


@pytest.mark.parametrize("former", VIEWS)
async def test_calls_of_a_log_on_both_faces(broker: BlockingBroker, former: str) -> None:
    new, call, expected = VIEWS[former]
    with warned(new) as seen:
        assert call(broker.log(T)) == expected
    assert [each.filename for each in seen] == [__file__]
    async with triolog.open(topics=[T]) as own:
        await own.append(T, [b"a"])
        with warned(new) as seen:
            assert await call(own.log(T)) == expected
    assert [each.filename for each in seen] == [__file__]


async def test_arguments_that_have_another_name(broker: BlockingBroker) -> None:
    host, port = address_of(broker)
    with warned("server="):
        client = BlockingClient(address=(host, port))  # type: ignore[call-arg]
    with client:
        with warned("no such argument"):
            assert isinstance(client.call(m.MetadataRequest(), wait_ms=5), m.MetadataResponse)  # type: ignore[call-arg]
    for old in ({"host": host, "port": port}, {"address": (host, port)}):
        with warned("server="):
            opened = connect(**old)  # type: ignore[arg-type]
        async with opened as other:
            with warned("no such argument"):
                assert isinstance(await other.call(m.MetadataRequest(), wait_ms=5), m.MetadataResponse)  # type: ignore[call-arg]
    with warned("server="), pytest.raises(TypeError, match="given twice: address= and server="):
        BlockingClient(server="x", address="y")  # type: ignore[call-arg]


async def test_brokers_listen_for_native_clients_unless_told_otherwise() -> None:
    with warned("triolog.blocking.open()"):
        blocking = BlockingBroker()
    with blocking:
        assert blocking.native is not None
    with warned("triolog.blocking.open()"):
        blocking = BlockingBroker(native=None)
    with blocking:
        assert blocking.native is None
    with warned("triolog.open()"):
        opened = open_broker()
    async with opened as running:
        assert running.native is not None
    with warned("triolog.aio.open()"):
        aio.open_broker()
    assert options.listening({"settings": {"native": "127.0.0.1:1"}}) == {"settings": {"native": "127.0.0.1:1"}}
    assert inspect.signature(open_broker).parameters.keys() == inspect.signature(aio.open_broker).parameters.keys()


async def test_the_configuration_of_a_topic(broker: BlockingBroker) -> None:
    with BlockingClient(address_of(broker)) as client:
        with warned("changes="), warned("deletes="):
            BlockingAdmin(client).alter_config(T, values={"retention.ms": "-1"}, delete=["segment.ms"])  # type: ignore[call-arg]
        with warned("config"):
            assert broker.describe_topic(T).configs == client.describe_topic(T).config == {"retention.ms": "-1"}


def test_the_end_of_an_append() -> None:
    with warned("last_offset + 1"):
        assert AppendResult(3, 5, -1, 0).end_offset == 6


@pytest.mark.merge
def test_a_program_that_runs_sees_its_own_line(tmp_path: Path) -> None:
    """As Python shows these warnings by default: those of `__main__`, and no others."""
    program = tmp_path / "program.py"
    program.write_text("from triolog.server.embedded import BlockingBroker\n\nwith BlockingBroker(native=None):\n    pass\n")
    done = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True)
    assert done.stderr.startswith(f"{program}:3: DeprecationWarning: triolog: BlockingBroker() is a former name; use")


@pytest.mark.merge
@pytest.mark.parametrize(("opened", "fails"), [("BlockingBroker()", True), ("triolog.blocking.open()", False)])
def test_programs_of_tests_and_pages_fail_with_former_names(opened: str, fails: bool) -> None:
    """Those in the process of the tests do anyway: every warning is an error there."""
    program = f"import triolog\nfrom triolog.server.embedded import BlockingBroker\n\nwith {opened}:\n    pass\n"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment())
    assert (done.returncode != 0, "DeprecationWarning: triolog: BlockingBroker() is a former" in done.stderr) == (fails, fails)


def test_new_names_do_not_warn(broker: BlockingBroker) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with BlockingClient(address_of(broker)) as client:
            assert [record.value for record in client.fetch(T)] == [b"a"]
            assert former_keywords(old="new")(lambda *, new: new)(new=1) == 1


def test_the_page_lists_every_former_name_with_its_new_one() -> None:
    page = (Path(__file__).parent.parent / "docs/upgrading.md").read_text(encoding="utf-8")
    section = page.partition("## Former names\n")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", section, re.MULTILINE))
    assert listed == OTHERS | {former: new for former, (new, *_) in (REQUESTS | VIEWS).items()}
