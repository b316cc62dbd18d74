"""An unhandled exception about one id, group, partition or directory in a background task: the task logs and counts it, serves
the others and retries. `CASES` has every task, and the sources are searched for loops that are not in it. What a coordinator
reads at the start and cannot use never ends the start: every later one would end in it, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest
import trio
import trio.testing
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue, MemberMetadata
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.groups.classic.groups import ClassicGroups
from triolog.server.groups.classic.rebalance import Rebalance
from triolog.server.groups.classic.values import Store
from triolog.server.groups.coordinators.assigned import AssignedCoordinator
from triolog.server.groups.coordinators.group_coordinator import GroupCoordinator
from triolog.server.logs import log_directories, log_opening
from triolog.server.logs.cleaner import Cleaner
from triolog.server.logs.cleaner_process import CleanerCounters
from triolog.server.logs.compaction import Scrub
from triolog.server.logs.disk_guard import DiskGuard
from triolog.server.logs.log_directories import LogDirectories
from triolog.server.logs.log_manager import _Job, expire_producers
from triolog.server.logs.log_retention import LogRetention
from triolog.server.logs.segment_leases import SegmentLeases
from triolog.server.logs.waiting_logs import WaitingLogs
from triolog.server.logs.wear import Wear
from triolog.server.offsets.group_offsets import GroupOffsets
from triolog.server.offsets.offsets_topic import OffsetsTopic
from triolog.server.partitions.disk import Disk
from triolog.server.partitions.partition import PartitionActor
from triolog.server.partitions.task_errors import TaskErrors
from triolog.server.sharing import state_log
from triolog.server.sharing.partition import SharePartition
from triolog.server.sharing.partitions import SharePartitions
from triolog.server.sharing.state.values import ShareKey
from triolog.server.stages import stage_commit_log
from triolog.server.stages.stage_commit_log import Application
from triolog.server.stages.stage_commits import StageCommits
from triolog.server.stages.stages import Stage, Stages
from triolog.server.storage.errors import LogDirectoryError, LogOfflineError
from triolog.server.transactions import transactional_ids
from triolog.server.transactions.hanging_transactions import HangingTransactions
from triolog.server.transactions.transaction_coordinator import TransactionCoordinator

from tests.support.brokers import TOPIC, running_broker, value, values_from
from tests.support.transactions import TransactionalProducer

SERVER: Final = Path(__file__).resolve().parent.parent.parent / "server"
IDS: Final = ("a", "b", "c")


class Due(NamedTuple):
    group_id: str
    member_id: str


class Case(NamedTuple):
    """Where an id is worked on, its name in the arguments, and what makes the task come round to all of them."""

    owner: Any
    function: str
    name: Callable[..., object]
    come_round: Callable[[Broker], Awaitable[object]]
    stub: bool = False
    """Whether nothing is done with the ids that do not fail."""


def partition_of(_: Any, hosted: Any, *__: Any, **___: Any) -> object:
    return hosted.actor.topic_partition


def second(_: Any, name: Any, *__: Any, **___: Any) -> object:
    return getattr(name, "path", getattr(name, "name", name))


def key_of(self: Any, *_: Any) -> object:
    return self.key


def manager_of(broker: Broker) -> Any:
    return broker._manager


async def forget_producers(broker: Broker) -> None:
    for hosted in manager_of(broker).topics.hosted():
        hosted.actor.log.producers.entries[1] = SimpleNamespace()
    await expire_producers(manager_of(broker).topics, broker.now_ms, broker.config, broker.disk.errors)
    for hosted in manager_of(broker).topics.hosted():
        hosted.actor.log.producers.entries.clear()


async def unlink(broker: Broker) -> None:
    retention = manager_of(broker).retention
    await retention._unlink_each(manager_of(broker).topics.hosted(), retention._give_space_back)


async def delete_directories(broker: Broker) -> None:
    changes = manager_of(broker).changes
    changes.doomed = [(-1.0, f"{manager_of(broker).log_directories.live[0].path}/{name}-0.x-delete") for name in IDS]
    await changes.delete_doomed()


async def open_waiting(broker: Broker) -> None:
    waiting = manager_of(broker).waiting
    waiting._attempts.clear()
    for hosted in manager_of(broker).topics.hosted():
        log = hosted.actor.log
        waiting._requests[log.topic_partition] = SimpleNamespace(topic_partition=log.topic_partition, directory=log.directory)
    await waiting.check()


async def probe(broker: Broker) -> None:
    for hosted in manager_of(broker).topics.hosted():
        hosted.actor.log.offline = LogOfflineError("offline")
    await manager_of(broker).log_directories.probe()


async def look_for_dirty_logs(broker: Broker) -> None:
    await Cleaner(manager_of(broker), None, CleanerCounters()).clean_dirtiest()  # type: ignore[arg-type]


async def scrub(broker: Broker) -> None:
    @asynccontextmanager
    async def child(*_: Any) -> Any:
        async def send(line: bytes) -> None: ...

        yield SimpleNamespace(send=send)

    await Scrub(manager_of(broker), child).run_pass()


async def end_leases(broker: Broker) -> None:
    for _ in range(3 - len(broker.leases)):
        await broker.leases.take([TopicPartition(TOPIC, 0)], 1000)
    for lease in broker.leases._leases.values():
        lease.ends_at = -1.0
    await broker.leases.end_overdue()


async def end_transactions(broker: Broker) -> None:
    for name in IDS:
        owner = broker.transactions.ids.owners.get(name)
        if owner is None:
            producer = await TransactionalProducer.start(broker, name, timeout_ms=1000)
            await producer.produce(TopicPartition(TOPIC, 0), name)
            owner = broker.transactions.ids.owners[name]
        owner.deadline = 0.0
    await broker.transactions.finish_overdue()


async def expire_ids(broker: Broker) -> None:
    for name in IDS:
        await TransactionalProducer.start(broker, name)
    await broker.transactions.expire_ids()


async def end_hanging(broker: Broker) -> None:
    hanging = broker._coordinators.hanging
    hanging._is_known = lambda *_: False
    for number, name in enumerate(IDS if not hanging._seen else ()):
        await (await TransactionalProducer.start(broker, name)).produce(TopicPartition(TOPIC, number), name)
    for actor in await hanging._unstable():
        hanging._seen |= dict.fromkeys(await hanging._hanging_on(actor), float("-inf"))
    await hanging.abort_overdue()


async def expire_offsets(broker: Broker) -> None:
    offsets = broker._coordinators.committed_offsets
    await offsets.topic.ensure()
    for name in IDS:
        contents = offsets.topic.contents(offsets.topic.partition_of(name))
        contents._offsets.setdefault(name, {})
    await broker.groups.expire()


async def let_members_expire(broker: Broker) -> None:
    members = broker.groups._members
    for name in IDS:
        member = MemberMetadata(member_id="m", session_timeout=1, rebalance_timeout=1, client_id="c", client_host="h")
        members.restore(name, GroupMetadataValue(protocol_type="consumer", generation=1, members=[member]), 0)
    members.on_time(10**12, lambda group: broker.disk.errors.isolate("classic-groups", group))


async def store_groups(broker: Broker) -> None:
    broker.groups._records.put([Store(number, name, GroupMetadataValue()) for number, name in enumerate(IDS, 10**6)])
    with trio.fail_after(30):
        while broker.groups._records._waiting:
            await broker.groups._records.written()


async def let_managed_members_expire(broker: Broker) -> None:
    for name in IDS:
        await broker.groups.consumers._expire(Due(name, "m"))


async def expire_groups(broker: Broker) -> None:
    for name in IDS:
        broker.groups._members.restore(name, GroupMetadataValue(), 0)
    await broker.groups.expire()


async def finish_commits(broker: Broker) -> None:
    log = broker.stage_commits.log
    log.decided = set(IDS)
    log.applications |= {name: Application(name, value=SimpleNamespace()) for name in IDS}  # type: ignore[misc]
    await broker.stage_commits.finish_overdue()


async def expire_stages(broker: Broker) -> None:
    for name in IDS:
        broker.stages._stages.setdefault(name, Stage(name)).touched = float("-inf")
    await broker.stages.expire()


async def expire_commits(broker: Broker) -> None:
    log = broker.stage_commits.log
    log.applications |= {name: Application(name) for name in IDS}
    await broker.stage_commits.expire()


def shares(broker: Broker) -> dict[ShareKey, SharePartition]:
    """Share-partitions of a topic that is not there."""
    for name in IDS:
        key = ShareKey(name, bytes(16), 0)
        state: Any = SimpleNamespace(dead_letters=[])
        share: Any = SharePartition(key, TopicPartition("gone", 0), state, 0, None, None, None)  # type: ignore[arg-type]
        broker.shares._open[key] = share
        broker.shares._log._shares[key] = SimpleNamespace()  # type: ignore[assignment]
    return broker.shares._open


async def end_locks(broker: Broker) -> None:
    shares(broker)
    async with trio.open_nursery() as nursery:
        broker.shares._expire_all(nursery)


async def forget_shares(broker: Broker) -> None:
    shares(broker)
    await broker.shares._forget_deleted()


async def release_shares(broker: Broker) -> None:
    session: Any = SimpleNamespace(partitions=list(shares(broker)), moved=set(), member_id="m")
    await broker.shares._release(session)


async def bury_shares(broker: Broker) -> None:
    for share in list(shares(broker).values()):
        await broker.shares._buried(share)


CASES: Final = {
    "producer-expiry": Case(PartitionActor, "perform", lambda self, *_: self.topic_partition, forget_producers, stub=True),
    "retention": Case(LogRetention, "_expire_one", partition_of, lambda broker: manager_of(broker).retention.run_pass()),
    "segment-deletion": Case(LogRetention, "_give_space_back", partition_of, unlink),
    "directory-deletion": Case(Disk, "call", lambda *arguments, **_: arguments[-1], delete_directories),
    "disk-guard": Case(DiskGuard, "_check", second, lambda broker: manager_of(broker).guard.check()),
    "waiting-logs": Case(WaitingLogs, "_try", lambda _, request: request.topic_partition, open_waiting),
    "checkpoints": Case(
        log_directories,
        "_offsets_of",
        lambda hosted: hosted.actor.topic_partition,
        lambda broker: manager_of(broker).log_directories.write_checkpoints(),
    ),
    "probe": Case(LogDirectories, "_guarded", second, probe),
    "compaction": Case(Cleaner, "_candidate", partition_of, look_for_dirty_logs),
    "scrub": Case(Scrub, "_look_at", lambda _, __, actor: actor.topic_partition, scrub),
    "wear": Case(Wear, "_ask_of", second, lambda broker: broker.wear.look()),
    "leases": Case(SegmentLeases, "_end", lambda _, lease: lease.lease_id, end_leases),
    "transaction-timeout": Case(TransactionCoordinator, "_end", second, end_transactions),
    "transactional-id-expiry": Case(TransactionCoordinator, "_expire", second, expire_ids),
    "hanging-transactions": Case(HangingTransactions, "_abort", second, end_hanging, stub=True),
    "offset-expiry": Case(GroupCoordinator, "_may_expire", second, expire_offsets),
    "classic-groups": Case(Rebalance, "came_due", lambda _, group, *__: group.group_id, let_members_expire),
    "group-records": Case(OffsetsTopic, "store_members", lambda _, __, values: " ".join(values), store_groups),
    "managed-groups": Case(AssignedCoordinator, "_handle_timer", lambda _, key: key.group_id, let_managed_members_expire),
    "group-expiry": Case(OffsetsTopic, "is_known", second, expire_groups),
    "stage-commits": Case(StageCommits, "_finish", second, finish_commits, stub=True),
    "stage-expiry": Case(Stages, "_drop", second, expire_stages, stub=True),
    "stage-commit-expiry": Case(StageCommits, "_expire", second, expire_commits),
    "share-locks": Case(SharePartition, "expire", key_of, end_locks, stub=True),
    "share-prune": Case(SharePartitions, "_delete_gone", second, forget_shares, stub=True),
    "share-dead-letters": Case(SharePartition, "bury", key_of, bury_shares, stub=True),
    "share-release": Case(SharePartition, "release", key_of, release_shares, stub=True),
}
ELSEWHERE: Final = {
    "maintenance": "test_a_job_that_fails_is_done_again",
    "partition": "partition/test_partition.py",
    "coordinator-load": "test_background_loads.py",
    **dict.fromkeys(
        ("audit-log", "file-closer", "free-pages", "watched-files", "watchdog"), "test_a_step_that_fails_is_done_again"
    ),
}
"""Tasks that are about one thing each."""


@pytest.mark.parametrize("task", CASES)
async def test_an_unhandled_exception_about_one_id_leaves_the_others_to_the_task(
    task: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case, seen = CASES[task], list[object]()
    (fast_path / "one").mkdir()
    (fast_path / "two").mkdir()
    async with running_broker(fast_path / "one", fast_path / "two", disk_reserve_bytes=0) as broker:
        await broker.topics.create(TOPIC, 4)
        original = getattr(case.owner, case.function)

        def fails_first(*arguments: Any, **more: Any) -> Any:
            name = case.name(*arguments, **more)
            seen.append(name)
            if name == seen[0]:
                raise ZeroDivisionError(f"injected: {name}")
            return SOON if case.stub else original(*arguments, **more)

        with monkeypatch.context() as patched:
            patched.setattr(case.owner, case.function, fails_first)
            for _ in range(2):
                await case.come_round(broker)
        assert len(set(seen)) > 1, "the others were not served"
        assert seen.count(seen[0]) >= 2, "it was not tried again"
        assert broker.disk.errors.counts[task] >= 2
        assert set(broker.disk.errors.counts) == {task}
        assert f"task={task} name=" in caplog.text
        assert (await broker.statistics()).task_errors[task] >= 2
        await broker.topics.create("later")


class _Soon:
    """What a function has done that had nothing to do, whether it is awaited or not."""

    def __await__(self) -> Iterator[None]:
        return iter(())

    def __bool__(self) -> bool:
        return False


SOON: Final = _Soon()


async def test_a_step_that_fails_is_done_again(autojump_clock: trio.testing.MockClock) -> None:
    errors, outcomes = TaskErrors(), [ZeroDivisionError(), None, OSError("x"), ExceptionGroup("", [KeyError()]), None]

    async def step() -> None:
        await trio.lowlevel.checkpoint()
        if not outcomes:
            await trio.sleep_forever()
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    with trio.move_on_after(60):
        await errors.repeat("x", step)
    assert (errors.counts["x"], outcomes) == (3, [])


@pytest.mark.parametrize("error", [LogDirectoryError("none is left"), ExceptionGroup("", [LogDirectoryError("none is left")])])
def test_a_task_ends_when_no_log_directory_is_left(error: Exception) -> None:
    with pytest.raises(type(error)), TaskErrors().isolate("x"):
        raise error


async def test_a_job_that_fails_is_done_again(autojump_clock: trio.testing.MockClock) -> None:
    errors, runs = TaskErrors(), list[float]()

    async def run() -> None:
        await trio.lowlevel.checkpoint()
        runs.append(trio.current_time())
        raise KeyError

    with trio.move_on_after(10.5):
        await _Job("job", run, errors, 1.0, trio.current_time()).repeat()
    assert errors.counts["maintenance"] == len(runs) == 11


def test_every_task_has_a_case() -> None:
    named = {name for path in SERVER.rglob("*.py") for name in re.findall(NAMED, path.read_text("utf-8"))}
    assert named == CASES.keys() | ELSEWHERE.keys()


NAMED: Final = re.compile(r'(?:errors\.(?:isolate|repeat|note)\(|errors\.isolate, )\s*"([a-z-]+)"')

OTHER_LOOPS: Final = {
    "partitions/task_errors.py:repeat": "the one that contains what its steps raise",
    "logs/log_manager.py:repeat": "contains what jobs raise",
    "logs/disk_guard.py:watch": "contains what looks raise",
    "logs/disk_guard.py:_give_up": "of one look; ends when the ages of all that goes are confirmed",
    "logs/log_opening.py:_report_regularly": "reports the progress of a start",
    "offsets/offsets_topic.py:load_partition": "ends; contains what loading raises",
    "transactions/transaction_coordinator.py:add_partitions": "of a request",
    "partitions/disk.py:_go_on": "of one procedure",
    "partitions/partition.py:_wait_for_room": "of one append",
    "loop/procedures.py:perform": "of one procedure",
    "logs/reader.py:wait_for_bytes": "of a request",
    "broker/share_fetches.py:wait": "of a request",
    "service/log_lines.py:tell_regularly": "writes lines of the log; a handler raises nothing",
    "loop/reactor.py:run": "sessions end with what they raise, and requests raise nothing when they expire",
    "listeners/connections/session.py:_attend": "of one connection",
    "listeners/connections/sockets.py:_accept": "contains what accepting raises",
    "listeners/connections/tls.py:_shake_hands": "of one connection",
}
"""Loops of coroutines that are no background tasks over many ids, or contain errors themselves. Those of a connection, of a
request to the control port and of an embedding program are left out by their folders."""
LEFT_OUT: Final = ("embedded/", "fake/", "listeners/http/", "listeners/kafka/", "listeners/native/", "storage/", "offline/")


def endless_loops() -> Iterator[str]:
    for path in SERVER.rglob("*.py"):
        name = path.relative_to(SERVER).as_posix()
        if not name.startswith(LEFT_OUT):
            for function in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(function, ast.AsyncFunctionDef) and any(map(is_endless, ast.walk(function))):
                    yield f"{name}:{function.name}"


def is_endless(node: ast.AST) -> bool:
    return isinstance(node, ast.While) and isinstance(node.test, ast.Constant)


@pytest.mark.merge
def test_every_endless_loop_of_the_server_contains_errors() -> None:
    """A new one is written with `TaskErrors.repeat`, and gets a case."""
    assert set(endless_loops()) == set(OTHER_LOOPS)


GROUPS: Final = ("one", "two")
LOADS: Final = {
    "a record of groups": (GroupOffsets, "replay"),
    "a classic group": (ClassicGroups, "restore"),
    "a transactional id": (transactional_ids, "decode_transaction_value"),
    "a state of a share group": (state_log.SHARE_STATE_RECORDS, "decode_value"),
    "a commit of staged records": (stage_commit_log, "decode_stage_commit_value"),
    "a log": (log_opening, "check_topic_id"),
}


async def fill(broker: Broker) -> None:
    """Something for every coordinator."""
    await broker.topics.create(TOPIC, 2)
    for number in range(2):
        await broker.writer.append(TopicPartition(TOPIC, number), value(str(number)))
    offsets = broker._coordinators.committed_offsets.topic
    await offsets.ensure()
    for group in GROUPS:
        await offsets.store_members(offsets.partition_of(group), {group: GroupMetadataValue()})
        await TransactionalProducer.start(broker, group)
        await broker.stage_commits.commit(group, 1, ())
    topic_id = broker._manager.topics.get(TOPIC).topic.topic_id.bytes
    for number in range(2):
        await broker.shares.initialize("share", topic_id, number)


@pytest.mark.parametrize("what", LOADS)
async def test_a_start_goes_on_without_what_it_cannot_load(
    what: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(fast_path) as broker:
        await fill(broker)
    owner, function = LOADS[what]
    original, calls = getattr(owner, function), list[object]()

    def fails_once(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise ZeroDivisionError("injected")
        return original(*arguments, **more)

    monkeypatch.setattr(owner, function, fails_once)
    async with running_broker(fast_path) as broker:
        assert "unhandled exception: " in caplog.text
        served = [each.error is None for each in broker.topics.describe(TOPIC).partitions]
        assert served == [True, True] if what != "a log" else any(served)
        number = served.index(True)
        assert await values_from(broker, TopicPartition(TOPIC, number)) == [str(number).encode()]
    async with running_broker(fast_path) as broker:
        assert broker._coordinators.committed_offsets.topic.readable()
        assert len(list(broker.transactions.ids.states())) == 2
        assert broker.stage_commits.last_version("one") == 1
