"""What a newcomer meets first: addresses as text, values that print, errors without the way that a call went. Directories that
go with their broker: those of killed processes are removed by the next one, others are left alone. Programs that end in every
way: in order, by an exception, by an interrupt, without closing the broker, and killed."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triolog
from confluent_kafka import Producer
from triolog.protocol.errors import ErrorCode, InvalidConfigError, RequestError
from triolog.server.embedded import MEMORY, Address, BlockingBroker
from triolog.server.embedded import living as embedded_living
from triolog.server.fake.clock import MovedClock
from triolog.server.partitions.faulty_disk import FaultyFileSystem
from triolog.server.storage.errors import LogDirectoryError
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from tests.server.embedded.programs import FACES, is_clean, program_of, run, running, stored
from tests.support.server_process import DEADLINE_S

T = "orders"


def test_an_address_may_be_text() -> None:
    broker = triolog.blocking.open(MEMORY, kafka="127.0.0.1:0").start()
    try:
        assert isinstance(broker, BlockingBroker)
        assert isinstance(broker.kafka, Address)
        assert (broker.kafka.host, broker.native, broker.bootstrap_servers) == ("127.0.0.1", None, str(broker.kafka))
    finally:
        broker.stop()


@pytest.mark.parametrize("name", ["kafka", "native", "metrics"])
@pytest.mark.parametrize("given", ["127.0.0.1", "localhost:kafka", 9092, ":0"])
async def test_what_is_no_address_is_refused_with_the_name_of_the_argument(name: str, given: Any) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is {given!r}, expected HOST:PORT such as 127.0.0.1:0"):
        async with triolog.open(MEMORY, **{name: given}):
            raise AssertionError


def test_whatever_a_program_is_given_prints_as_what_it_is() -> None:
    with triolog.blocking.open(MEMORY, kafka="127.0.0.1:0", topics=[T]) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "till"}).list_topics(timeout=60)
        broker.append(T, [b"espresso"])
        fault = broker.faults.add("Produce", hold=True)
        follow = broker.follow(T, group="baristas", max_wait_s=0)
        [record] = list(follow)
        texts = {
            "broker": repr(broker),
            "record": repr(record),
            "follow": repr(follow),
            "log": repr(broker.log(T)),
            "faults": repr(broker.faults),
            "fault": repr(fault),
            "requests": repr(broker.requests),
            "request": repr(broker.requests.find("Metadata")[-1]),
            "transaction": repr(broker.transaction("till")),
            "clock": repr(broker.clock),
            "groups": repr((broker.groups, broker.share_groups, broker.streams_groups)),
        }
        assert {name for name, text in texts.items() if " object at 0x" in text} == set()
        assert broker.bootstrap_servers in texts["broker"]
        assert broker.path in texts["broker"]
        assert "topic='orders', partition=0, offset=0" in texts["record"]
        assert "b'espresso'" in texts["record"]
        assert (T in texts["follow"], T in texts["log"], "till" in texts["transaction"]) == (True, True, True)
        assert "fired 0 of 0" in texts["fault"]
        assert "fired 0 of 0" in texts["faults"]
        assert "Metadata" in texts["request"]
        assert "client=till" in texts["request"]
    assert "not started or ended" in repr(broker)
    assert " object at 0x" not in repr(MovedClock())


async def test_a_broker_of_a_trio_program_prints_where_it_is() -> None:
    async with triolog.open(MEMORY, native="127.0.0.1:0") as broker:
        assert broker.path in repr(broker)
        assert str(broker.native) in repr(broker)
        await broker.stop()
        assert "down" in repr(broker)


def frames(error: BaseException) -> list[str]:
    """The functions that a traceback shows, the test's own first."""
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


def test_an_answer_comes_without_the_way_of_the_call() -> None:
    with triolog.blocking.open(MEMORY, topics=[T]) as broker:
        for call in (
            lambda: broker.fetch("order"),
            lambda: broker.describe_topic("order"),
            lambda: broker.log("order").values(),
        ):
            with pytest.raises(RequestError) as caught:
                call()
            assert frames(caught.value)[2:] == ["call"]
        with pytest.raises(TimeoutError) as late:
            broker.log(T).wait_for(timeout_s=0.01)
        assert frames(late.value)[1:] == ["call"]
        with pytest.raises(TypeError) as wrong:
            broker.append(T, "text")  # type: ignore[arg-type]
        assert frames(wrong.value)[1] == "call"
        assert "check_records" in frames(wrong.value), "where it comes from is seen"
        assert not {"unwrap", "from_thread_run", "_outside_of_trio"} & set(frames(wrong.value))


def test_an_answer_of_an_asyncio_program_comes_without_the_way_of_the_call() -> None:
    async def main() -> list[str]:
        async with triolog.aio.open(MEMORY) as broker:
            with pytest.raises(RequestError) as caught:
                await broker.fetch(T)
            return frames(caught.value)

    assert asyncio.run(main())[1:] == ["call"]


KILLED = """
import os, signal
import triolog
broker = triolog.blocking.open(topics=["t"]).start()
broker.append("t", [b"x"])
print(broker.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where directories go; they need not be old to be removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(embedded_living, "YOUNG_S", -1.0)
    embedded_living.remove_left.cache_clear()
    yield tmp_path
    embedded_living.remove_left.cache_clear()


@pytest.mark.merge
async def test_what_a_killed_process_has_left_is_removed_by_the_next_broker(parent: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(parent)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    data = Path(killed.stdout.strip())
    left = data.parent
    assert left.parent == parent
    assert (data / "t-0").is_dir()
    async with triolog.open() as broker:
        assert not left.exists()
        assert Path(broker.path).parent.parent == parent
    assert list(parent.iterdir()) == []


async def test_what_is_in_use_or_not_ours_is_left_alone(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used, older, young = parent / "triolog-run-used", parent / "triolog-x1", parent / "triolog-run-young"
    for each in (used, older, young):
        each.mkdir()
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (parent / "triolog-run-link").symlink_to(older)
    async with triolog.open():
        assert {each.name for each in parent.iterdir()} >= {used.name, older.name, "triolog-run-link"}
        assert not young.exists()
    os.close(lock)
    young.mkdir()
    monkeypatch.setattr(embedded_living, "YOUNG_S", 60.0)
    embedded_living.remove_left.cache_clear()
    async with triolog.open():
        assert young.exists(), "it may be locked in a moment"
    shutil.rmtree(young)


async def test_memory_that_is_full_is_named_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was told to try again would say that its messages have timed out."""
    async with triolog.open(MEMORY, topics=["t"]) as broker:
        if not broker.core.disk.fs.is_instant:
            pytest.skip("no memory for files here")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(FaultyFileSystem, "write", full)
            with pytest.raises(RequestError, match=r"No space left on device.*Memory for files is full.*--shm-size") as caught:
                await broker.append("t", [b"x"])
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        assert (await broker.append("t", [b"x"])).base_offset == 0


STARTS_A_PROGRAM = pytest.mark.merge

APPENDS = """async with opened(sys.argv[1], topics=["topic"]) as broker:
    await broker.append("topic", [b"kept"])
    {then}
"""

WARNS = 'import logging; logging.getLogger("triolog.server.broker").warning("{}")'
"""Without any handler a warning would be on standard error."""

NEVER_CLOSED = """
broker = triolog.blocking.open(sys.argv[1] or None, topics=["topic"])
broker.start()
broker.append("topic", [b"kept"])
say(broker.path)
"""

LOOP_CLOSED_EARLY = """
import asyncio, sys
import triolog

loop = asyncio.new_event_loop()
broker = loop.run_until_complete(triolog.aio.open(sys.argv[1], topics=["topic"]).__aenter__())
loop.run_until_complete(broker.append("topic", [b"kept"]))
{then}
loop.close()
"""

WRITES_ON = """async with opened(sys.argv[1], durability=sys.argv[2], topics=["topic"]) as broker:
    number = 0
    while True:
        await broker.append("topic", [b"%d" % number])
        say(number)
        number += 1
"""


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("then", "status", "told"),
    [(WARNS.format("silent"), 0, ""), ("sys.exit(3)", 3, ""), ("1 / 0", 1, "ZeroDivisionError")],
    ids=["in order", "by sys.exit", "by an exception"],
)
@STARTS_A_PROGRAM
def test_the_end_of_a_block_is_a_silent_clean_stop(tmp_path: Path, face: str, then: str, status: int, told: str) -> None:
    ended, said, error = run(program_of(face, APPENDS.format(then=then)), tmp_path)
    assert (ended, said) == (status, ""), error
    assert told in error
    assert bool(told) == bool(error)
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


@pytest.mark.parametrize("face", FACES)
@STARTS_A_PROGRAM
@pytest.mark.parametrize("waits_in", ["a call", "the program"])
def test_an_interrupt_is_a_clean_stop(tmp_path: Path, face: str, waits_in: str) -> None:
    asleep = {"blocking": "threading.Event().wait()", "asyncio": "await asyncio.sleep(3600)", "trio": "await trio.sleep(3600)"}
    then = {"a call": 'await broker.fetch("topic", 1, max_wait_s=3600)', "the program": asleep[face]}[waits_in]
    with running(program_of(face, APPENDS.format(then=f'say("ready"); {then}')), tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (-signal.SIGINT, 1), told
    assert told.rstrip().endswith("KeyboardInterrupt"), told
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


@STARTS_A_PROGRAM
def test_a_broker_that_is_never_closed_stops_in_order_when_the_interpreter_exits(tmp_path: Path) -> None:
    status, said, told = run(program_of("blocking", NEVER_CLOSED), tmp_path)
    assert (status, said, told) == (0, f"{tmp_path}\n", "")
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


@STARTS_A_PROGRAM
def test_a_temporary_directory_goes_with_the_interpreter() -> None:
    status, said, told = run(program_of("blocking", NEVER_CLOSED), "")
    assert (status, told) == (0, "")
    assert not Path(said.strip()).exists()


IN_A_CALL = """
waits = loop.create_task(broker.fetch("topic", 1, max_wait_s=3600))
loop.call_later(0.01, loop.stop)
loop.run_forever()
"""


@STARTS_A_PROGRAM
@pytest.mark.parametrize("then", ["", IN_A_CALL], ids=["idle", "in a call"])
def test_a_loop_that_is_closed_early_leaves_the_broker_to_the_end_of_the_interpreter(tmp_path: Path, then: str) -> None:
    status, _, told = run(LOOP_CLOSED_EARLY.format(then=then), tmp_path)
    assert status == 0, told
    assert "Traceback" not in told
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


@STARTS_A_PROGRAM
@pytest.mark.parametrize(("face", "durability"), list(zip(FACES, ["fsync", "os", "fsync"], strict=True)))
def test_a_program_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path: Path, face: str, durability: str) -> None:
    with running(program_of(face, WRITES_ON), tmp_path, durability) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout.read().split()]
    assert not is_clean(tmp_path)
    found = stored(tmp_path)
    assert found[: len(acknowledged)] == [b"%d" % number for number in acknowledged]
    assert len(found) <= len(acknowledged) + 1


@STARTS_A_PROGRAM
def test_what_is_logged_is_there_for_a_program_that_wants_it(tmp_path: Path) -> None:
    wanted = f"import logging; logging.basicConfig(); {WARNS.format('wanted')}"
    assert "WARNING:triolog.server.broker:wanted" in run(program_of("trio", APPENDS.format(then=wanted)), tmp_path)[2]


FORKS = """async with opened(sys.argv[1], topics=["topic"], native="127.0.0.1:0") as broker:
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12 on
    child = os.fork()
    if child == 0:
        try:
            await broker.append("topic", [b"of the child"])
        except ForkedError as error:
            say(error)
        else:
            say("no error")
        {leaves}
    _, status = os.waitpid(child, 0)
    say("child", os.waitstatus_to_exitcode(status))
    await broker.append("topic", [b"of the parent"])
    say(broker.native)
    {waits}
"""

TOLD = "this process is a fork of the one in which the broker runs"


@pytest.mark.parametrize(("face", "leaves"), [*((face, "os._exit(7)") for face in FACES), ("blocking", "sys.exit(7)")])
@STARTS_A_PROGRAM
def test_a_child_says_that_it_has_no_broker_and_leaves_that_of_its_parent_alone(tmp_path: Path, face: str, leaves: str) -> None:
    """A child that goes on in a loop of asyncio or trio would share that loop's epoll with its parent, broker or not."""
    waits = "await trio.to_thread.run_sync(sys.stdin.readline)" if face == "trio" else "sys.stdin.readline()"
    program = program_of(face, FORKS.format(leaves=leaves, waits=waits))
    with running(program, tmp_path) as parent:
        assert parent.stdout is not None
        assert TOLD in parent.stdout.readline()
        assert parent.stdout.readline() == "child 7\n"
        host, port = parent.stdout.readline().strip().split(":")
        with BlockingClient((host, int(port))) as client:
            assert [each.name for each in BlockingAdmin(client).list_topics()] == ["topic"]
        with pytest.raises(LogDirectoryError, match=f"triolog, process {parent.pid}"):
            triolog.blocking.open(tmp_path).start()
        _, told = parent.communicate("\n", timeout=DEADLINE_S)
    assert (parent.returncode, told) == (0, "")
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"of the parent"]
