"""Every table of the server that may grow has an account in bytes, or a reason why no client can let it grow.
A new field that is a dict, a set, a list, a deque or a Counter fails here until somebody says which of the two it has.
No change is accepted that the next start could not read: sizes of files, values and names are checked before it counts.
"""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import triolog.server.system.client_memory as ledger
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.access.acls import Acl
from triolog.server.broker import Broker
from triolog.server.groups.coordinators.group_coordinator import ConsumerCoordinator, StreamsCoordinator
from triolog.server.groups.coordinators.share import ShareCoordinator
from triolog.server.storage.disk import checkpoints

from tests.support.brokers import running_broker

SERVER: Final = Path(ledger.__file__).parents[1]
OF_NO_CLIENT: Final = {"config", "embedded", "fake", "figures", "offline", "service", "storage", "system"}
"""Packages that keep nothing that a client names."""
COLLECTIONS: Final = {"dict", "set", "list", "deque", "Counter", "OrderedDict", "defaultdict"}

ACCOUNTED: Final = {
    "classic groups": """ClassicGroups._groups ClassicGroups._stores ClassicGroup.members ClassicGroup.static_members
        ClassicGroup.pending_joins ClassicGroup.pending_syncs ClassicGroup._supported Assignments._stored Joining.returns""",
    "client instances": "ClientInstances._instances ClientInstances._of_connection",
    "client metrics": "Collected._clients _OfClient.values",
    "commits of staged tasks": "StageCommitLog.applications StageCommitLog.decided Application.finished",
    "committed offsets": """GroupOffsets._offsets GroupOffsets._pending GroupOffsets._records GroupOffsets._bytes
        GroupOffsets._topic_ids""",
    "configurations of groups": "GroupConfigs._known",
    "consumer groups": """AssignedGroup.members AssignedGroup.targets ConsumerGroup.regexes ConsumerGroup.static_members
        ConsumerGroup.owners ConsumerGroups._armed AssignedGroups._groups AssignedCoordinator._sizes""",
    "fetch sessions": """FetchSessions._sessions FetchSessions._evictable FetchSession.partitions FetchSession.seen
        FetchSession.names""",
    "keys of the server": "",
    "registered schemas": """Schemas._subjects Schemas._uses Schemas._ids Schemas._referrers Schemas._configs
        Schemas._modes""",
    "segment leases": "SegmentLeases._leases Lease.partitions Lease.directories",
    "share groups": "ShareGroup.subscriptions",
    "share sessions": """ShareSessions._sessions ShareSessions._groups ShareSession.partitions ShareSession.moved
        SharePartitions._sessions SharePartitions._ending""",
    "share states": """ShareStateLog._shares ShareStateLog._snapshots SharePartitions._open
        SharePartitions._open_groups""",
    "staged tasks": "Stages._stages Stages._going Stages.held Stage.files",
    "streams groups": "StreamsGroup.active StreamsGroup.copies PartitionCounts.decided",
    "subscriptions": "",
    "topic configurations": "Topics._topics Topics._names Topics._by_collision_key",
    "transactional ids": """TransactionalIds.owners TransactionalIds.unfinished TransactionalIds._of_producer
        TransactionalId.marked""",
    "users, ACLs and quotas": """AclAuthorizer._literal AclAuthorizer._prefixed AclAuthorizer._prefix_lengths
        ClientQuotas._bounds ClientQuotas._addresses""",
}
"""Tables by account."""

NOT_KEPT: Final = {
    "lives as long as a request, a turn or a round of work; requests have a budget of their own": """
        GroupCoordinator._callers GroupRecords._waiting KeyedLocks._locks ShareCoordinator._claims AssignedCoordinator._makers
        GroupOffsets.commits_under_way
        Fetched.answers Fetched.read Collector.topics Collector.partitions Portion.topics KafkaProduce._log_starts
        GroupDraft.records GroupDraft.touched Effects._answers Effects._stores _Kind.partitions _Run.active _Run.standby
        Process.counts Process.tasks Acquisition._acquired Acquisition.archived
        Change.batches Change.runs Change.counted Change.dead_letters Mailbox._items
        Mailbox._waiting PartitionActor._urgent PartitionActor._awaited Gathering.writers Gathering.senders Waiters.events
        PartitionMaker.made PartitionMaker._loads TopicChanges._unfinished TopicChanges._going
        HangingTransactions._aborting DirectoryContents.sizes LineStream._ranges LineStream._records
        _Proof._assumed _Proof._split
        _Comparison._seen""",
    "read from a log at the start, until the coordinators have taken it": "GroupOffsets._restorable GroupOffsets._assigned",
    "belongs to a connection: 128 KiB each, see max_connections": """
        Account.charged InFlightBudget.shares InFlightBudget._principals ConnectionTask._alarms
        Places._listeners ListenerPlaces.connections ListenerPlaces.newcomers Reactor._watched Reactor._again
        PortableWatcher._sockets PortableWatcher._ready
        Listener._handshakes Listener._served Transport._unsent Transport._rest UnsentAnswers._slow
        KafkaCalls._calls KafkaSession._turns Fetches._long_polls NativeSession.amends NativeSession._taken
        NativeSession._expiring""",
    "one small entry for each topic, partition, file or disk that exists": """
        Cleaner.clean_up_to Cleaner.uncleanable Cleaner._failures Cleaner._deaths Cleaner._written Scrub._told
        OffsetsTopic._loaded TransactionalIds._unreadable DescriptorBudget._holders OpenFiles._to_close
        Rooms._rooms DiskGuard.spaces GapPasses._passed GapPasses._refused LogDirectories.live LogDirectories.failed
        LogDirectories.stray LogDirectories._locked LogDirectories._writing_checkpoints
        Disk._lanes Topics.entries LogManager._unclean LogOpener._written_back TopicChanges.doomed Topics.half_deleted
        WaitingLogs._requests WaitingLogs._attempts Looks._kept UndatedRecords._absent
        Wear._histories Wear._appended Wear._sums HangingTransactions._seen Mirroring._replacing""",
    "names are cut, or replaced by digests, and the number of entries is limited": """
        GapPasses._groups GapPasses._told AclAuthorizer._decided MutationBuckets._buckets ClientQuotas._limits
        ClientQuotas._rates Seldom._said AuditLog._lines QuotaRate._samples Topics._deleted_at Security._shapes
        Security._checked""",
    "what the server's own files say": "Security._users Security._derived Each.changes",
    "records that a group holds locks on, bounded by share.partition.max.record.locks": """
        SharePartitionState.batches SharePartitionState.dead_letters""",
    "one deadline for each member of a group, counted with the member": "Timers._deadlines Timers._queued Timers._queue",
    "one entry for each source of which the configuration has a table": "Mirroring._reserved Mirroring._links",
    "one entry for each API, error or reason in the code": """
        Durations.counts ApiCounters.errors ProtocolCounters.ended ProtocolCounters.apis Admission.protocols
        Admission.listeners KafkaDoor.apis Listeners.protocols Listeners._listeners QuotaStatistics.throttled
        QuotaStatistics.throttled_s Telemetry.pushes TaskErrors.counts""",
}
"""Tables by the reason why they need no account."""


def tables() -> Iterator[str]:
    """Class and field of every collection that an instance of the server's classes begins with."""
    for node in nodes("factory"):
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in _fields(node))


def nodes(word: str) -> Iterator[ast.AST]:
    """The syntax of every module that has this word."""
    for path in sorted(SERVER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if word in text and path.relative_to(SERVER).parts[0] not in OF_NO_CLIENT:
            yield from ast.walk(ast.parse(text))


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None:
            kind = ast.unparse(each.annotation).partition("[")[0].rpartition(".")[2]
            if kind in COLLECTIONS and "factory" in ast.unparse(each.value):
                yield each.target.id


def test_every_table_has_an_account_or_a_reason_why_it_needs_none() -> None:
    named = [name for names in (*ACCOUNTED.values(), *NOT_KEPT.values()) for name in names.split()]
    found = set(tables())
    assert len(named) == len(set(named))
    assert sorted(found - set(named)) == [], "which account, or which reason?"
    assert sorted(set(named) - found) == [], "there is no such table"


def test_every_account_has_a_table_and_is_opened() -> None:
    kinds = {each.KIND for each in (ConsumerCoordinator, ShareCoordinator, StreamsCoordinator)}
    opened = {f"{kind} groups" for kind in kinds}
    for node in nodes(".account("):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "account":
            opened |= {each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    for node in [*nodes("Copies("), *nodes("._open(")]:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Copies", "cls._open"):
            opened |= {each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    assert opened == set(ledger.ACCOUNTS) == set(ACCOUNTED)


SHA_256 = ScramMechanism.SCRAM_SHA_256
LIMIT = 4096
FEW = 200
"""Changes, more than fit into a file of LIMIT bytes."""


def _acl(name: str) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW)


async def _topic(broker: Broker, number: int) -> None:
    await broker.topics.create(f"topic-{number}", 1, {"retention.ms": "1"})


async def _topic_config(broker: Broker, number: int) -> None:
    if not number:
        await broker.topics.create("one")
    await broker.topics.alter_configs("one", {"retention.hold.groups": ",".join(f"group-{i}" for i in range(number * 10))}, ())


async def _quota(broker: Broker, number: int) -> None:
    await broker.security.alter_client_quotas({(("client-id", f"{number}"),): {"producer_byte_rate": 1.0}})


async def _acls(broker: Broker, number: int) -> None:
    await broker.security.create_acls([_acl(f"{number}")])


async def _user(broker: Broker, number: int) -> None:
    credential = ScramCredential.from_salted_password(SHA_256, 4096, b"salt", b"x" * 32)
    await broker.security.alter_scram_users({(f"user-{number}", SHA_256): credential}, ())


async def _group(broker: Broker, number: int) -> None:
    await broker.group_configs.change(f"group-{number}", lambda _: {"share.auto.offset.reset": "earliest"})


async def _metrics(broker: Broker, number: int) -> None:
    await broker.client_metrics.change(f"subscription-{number}", lambda _: {"metrics": "org.apache.kafka." * 5})


FLOODS: dict[str, tuple[str, Callable[[Broker, int], Awaitable[None]]]] = {
    "topics": ("topics.json", _topic),
    "partitions": ("recovery-point-offset-checkpoint", _topic),
    "configurations of a topic": ("topics.json", _topic_config),
    "quotas": ("security.json", _quota),
    "ACLs": ("security.json", _acls),
    "users": ("security.json", _user),
    "groups": ("groups.json", _group),
    "subscriptions": ("client-metrics.json", _metrics),
}


@pytest.mark.merge
@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_is_refused_before_a_file_is_too_large(
    flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that was accepted is there after a restart, and changes can be made again."""
    name, change = FLOODS[flood]
    monkeypatch.setitem(checkpoints.LIMITS, name, LIMIT)
    async with running_broker(tmp_path) as broker:
        for number in range(FEW):
            try:
                await change(broker, number)
            except RequestError as exc:
                refusal = exc
                break
        assert (refusal.code, number > 0) == (ErrorCode.POLICY_VIOLATION, True)
        stored = _stored(broker)
    assert all((tmp_path / each).stat().st_size <= LIMIT for each in (name, f"{name}.previous") if (tmp_path / each).exists())
    async with running_broker(tmp_path) as broker:
        assert _stored(broker) == stored


def _stored(broker: Broker) -> tuple[object, ...]:
    topics = {name: broker.topics.describe(name).config for name in broker.topics.names()}
    security = broker.security
    states = dict(security.client_quotas()), dict(security.scram_users()), dict(broker.group_configs.overrides())
    return topics, *states, dict(broker.client_metrics.overrides())


async def test_values_and_names_have_limits(tmp_path: Path) -> None:
    long = "1:1," * 10_000 + "1:1"
    async with running_broker(tmp_path, lenient=True) as broker:
        await broker.topics.create("one")
        too_long = [
            lambda: broker.topics.create("two", 1, {"leader.replication.throttled.replicas": long}),
            lambda: broker.topics.create("two", 1, {"k" * 256: "v"}, lenient=True),
            lambda: broker.topics.create("two", 1, {"retention.hold.groups": long}, validate_only=True),
            lambda: broker.topics.alter_configs("one", {"retention.hold.groups": long}, ()),
            lambda: broker.topics.change_configs("one", lambda _: {"unknown": long}, lenient=True),
            lambda: broker.group_configs.change("g", lambda _: {"share.auto.offset.reset": long}),
            lambda: broker.client_metrics.change("s", lambda _: {"metrics": long}),
            lambda: broker.client_metrics.change("s" * 1025, lambda _: {"metrics": "a"}),
            lambda: broker.security.alter_client_quotas({(("client-id", "x" * 1025),): {"producer_byte_rate": 1.0}}),
            lambda: broker.security.create_acls([_acl("x" * 1025)]),
        ]
        for change in too_long:
            with pytest.raises(RequestError, match=r"at most|maximum value size") as raised:
                await change()
            assert len(str(raised.value)) < 1000
