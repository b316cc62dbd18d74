"""Programs that end in every way: in order, by an exception, by an interrupt, without closing the broker, and killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.server.storage.errors import LogDirectoryError
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from tests.server.embedded.programs import FACES, is_clean, program_of, run, running, stored
from tests.support.server_process import DEADLINE_S

pytestmark = pytest.mark.merge  # each test starts a program

APPENDS = """async with opened(sys.argv[1], topics=["topic"]) as broker:
    await broker.append("topic", [b"kept"])
    {then}
"""

WARNS = 'import logging; logging.getLogger("triolog.server.broker").warning("{}")'
"""Without any handler a warning would be on standard error."""

NEVER_CLOSED = """
broker = BlockingBroker(sys.argv[1] or None, topics=["topic"])
broker.start()
broker.append("topic", [b"kept"])
say(broker.path)
"""

LOOP_CLOSED_EARLY = """
import asyncio, sys
from triolog.server.embedded.aio import open_broker

loop = asyncio.new_event_loop()
broker = loop.run_until_complete(open_broker(sys.argv[1], topics=["topic"]).__aenter__())
loop.run_until_complete(broker.append("topic", [b"kept"]))
{then}
loop.close()
"""

WRITES_ON = """async with opened(sys.argv[1], native=None, durability=sys.argv[2], topics=["topic"]) as broker:
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
def test_a_block_that_ends_is_a_clean_stop_and_says_nothing_of_its_own(
    tmp_path: Path, face: str, then: str, status: int, told: str
) -> None:
    ended, said, error = run(program_of(face, APPENDS.format(then=then)), tmp_path)
    assert (ended, said) == (status, ""), error
    assert told in error
    assert bool(told) == bool(error)
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


@pytest.mark.parametrize("face", FACES)
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


def test_a_broker_that_is_never_closed_stops_in_order_when_the_interpreter_exits(tmp_path: Path) -> None:
    status, said, told = run(program_of("blocking", NEVER_CLOSED), tmp_path)
    assert (status, said, told) == (0, f"{tmp_path}\n", "")
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


def test_a_temporary_directory_goes_with_the_interpreter() -> None:
    status, said, told = run(program_of("blocking", NEVER_CLOSED), "")
    assert (status, told) == (0, "")
    assert not Path(said.strip()).exists()


IN_A_CALL = """
waits = loop.create_task(broker.fetch("topic", 1, max_wait_s=3600))
loop.call_later(0.01, loop.stop)
loop.run_forever()
"""


@pytest.mark.parametrize("then", ["", IN_A_CALL], ids=["idle", "in a call"])
def test_a_loop_that_is_closed_early_leaves_the_broker_to_the_end_of_the_interpreter(tmp_path: Path, then: str) -> None:
    status, _, told = run(LOOP_CLOSED_EARLY.format(then=then), tmp_path)
    assert status == 0, told
    assert "Traceback" not in told
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"kept"]


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


def test_what_is_logged_is_there_for_a_program_that_wants_it(tmp_path: Path) -> None:
    wanted = f"import logging; logging.basicConfig(); {WARNS.format('wanted')}"
    assert "WARNING:triolog.server.broker:wanted" in run(program_of("trio", APPENDS.format(then=wanted)), tmp_path)[2]


FORKS = """async with opened(sys.argv[1], topics=["topic"]) as broker:
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

TOLD = "this process was forked from the one in which the broker runs"


@pytest.mark.parametrize(
    ("face", "leaves"),
    [*((face, "os._exit(7)") for face in FACES), ("blocking", "sys.exit(7)")],
)
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
        with pytest.raises(LogDirectoryError, match=f"log directory {tmp_path} is locked by triolog, process {parent.pid}"):
            BlockingBroker(tmp_path, native=None).start()
        _, told = parent.communicate("\n", timeout=DEADLINE_S)
    assert (parent.returncode, told) == (0, "")
    assert is_clean(tmp_path)
    assert stored(tmp_path) == [b"of the parent"]
