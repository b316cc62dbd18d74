"""A broker that can be stopped, killed and started again in its process, on its ports, while a test goes on.

A crash leaves what SIGKILL leaves: connections are cut, nothing is flushed, no checkpoint is written, the directory is not
marked clean; the next start recovers. It is done by a file system that dies (`partitions.faulty_disk`): what the broker still
does to end, it does to nothing.

`Seed` has the topics and records that a broker begins with. `noted` puts changes that no client requests into the audit log.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Final, Self, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.types import TopicPartition
from ..broker import Broker, PlainRecord, open_broker_core
from ..config.broker_config import BrokerConfig
from ..config.listener_security import OAUTHBEARER
from ..config.values import Address
from ..listeners.addresses import Addresses
from ..partitions.faulty_disk import FaultyFileSystem
from ..storage.disk.checkpoints import META_PROPERTIES_FILE, PRODUCER_ID_BLOCK_FILE
from ..storage.disk.filesystem import OsFileSystem
from ..system.block_devices import lies_in_memory
from ..system.clock import ServerClock
from .clock import MovedClock
from .faults.faults import DiskFaults, Faults
from .faults.requests import RequestLog
from .ports import Ports
from .views.log_view import Text, as_bytes

if TYPE_CHECKING:
    from ..listeners.connections.counters import ProtocolCounters
    from ..listeners.connections.sockets import Admission
    from ..listeners.opening import Listeners
    from .kafka.node_listeners import NodeListener
    from .kafka.nodes import Nodes
    from .odd_logs import OddLogs
    from .token_issuer import TokenIssuer

Prepare = Callable[[Broker], Awaitable[None]]
BACKUP_WAIT_S: Final = 0.01
KEPT_FILES: Final = (META_PROPERTIES_FILE, PRODUCER_ID_BLOCK_FILE)
"""What a reset leaves: clients that live on would take another cluster id for another cluster, and keep their producer ids."""


class NotRunningError(RuntimeError):
    """The broker is down: it has crashed or was stopped, and was not started again."""


class ForkedError(NotRunningError):
    """This process was forked from the one in which the broker runs."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message
            or "this process is a fork of the one in which the broker runs, and has no broker. Connect a client to "
            "that one, open another one on another path, or share one with open_or_join"
        )


@attrs.define(eq=False, repr=False)
class Life:
    """Owner of the running core. `run` is the task of one life, in `nursery`."""

    config: BrokerConfig
    wanted: Addresses
    nursery: trio.Nursery
    clock: MovedClock = attrs.field(factory=MovedClock)
    faults: Faults = attrs.field(factory=Faults)
    disk_faults: DiskFaults = attrs.field(factory=DiskFaults)
    requests: RequestLog = attrs.field(factory=RequestLog)
    old_formats: dict[tuple[bytes, int], dict[int, int]] = attrs.field(factory=dict)
    """See `OddLogs.old_formats`."""
    addresses: Addresses = attrs.field(factory=Addresses)
    node_count: int = 1
    """Listeners of Kafka's protocol that look like so many brokers."""
    kafka_version: str | None = None
    """Behave like this version of Kafka."""
    has_grace: bool = False
    """Whether a stop waits for responses to open requests, for at most `stop_grace_ms`."""
    checks_clock: bool = False
    """Whether the wall clock has to be plausible, as a server's, or is a test's."""
    issues_tokens: bool = False
    """Whether it issues the tokens of OAUTHBEARER itself, if the configuration names no other keys."""
    tokens: TokenIssuer | None = None
    nodes: Nodes | None = None
    protocols: dict[str, ProtocolCounters] = attrs.field(factory=dict)
    """What connections have counted, over all lives."""
    registry: Address | None = None
    """The address of the schema registry, once it was started. It stays through all lives."""
    starts: int = 0
    torn_files: list[str] = attrs.field(factory=list)
    """What the last crash took bytes from."""
    _core: Broker | None = None
    _is_forked: bool = False
    _fs: FaultyFileSystem = attrs.field(init=False)
    _serving: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stop: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)
    _ports: Ports = attrs.field(factory=Ports)
    _node_addresses: list[Address] = attrs.field(factory=list)
    _node_listeners: dict[int, NodeListener] = attrs.field(factory=dict)
    _listeners: Listeners | None = None
    _admission: Admission | None = None
    _odd_logs: OddLogs | None = None
    _prepare: Prepare | None = None
    """What is done to the next core before it listens."""

    def __attrs_post_init__(self) -> None:
        config = self.config
        has_keys = config.sasl_oauthbearer_jwks_endpoint_url is not None
        if self.issues_tokens and self.tokens is None and OAUTHBEARER in config.sasl_enabled_mechanisms and not has_keys:
            from .token_issuer import TokenIssuer

            self.tokens = TokenIssuer(self.clock.now_ms, not config.sasl_oauthbearer_unsecured_tokens)
        if self.tokens is not None:
            self.config = attrs.evolve(config, token_authority=self.tokens)

    @property
    def core(self) -> Broker:
        """Raises NotRunningError."""
        if self._core is None:
            raise ForkedError if self._is_forked else NotRunningError("the broker is down. Call restart() to start it again")
        return self._core

    @property
    def odd_logs(self) -> OddLogs:
        """The logs that no real broker would have."""
        if self._odd_logs is None:
            from .odd_logs import OddLogs  # most tests have none

            self._odd_logs = OddLogs(self.old_formats)
        return self._odd_logs

    @property
    def is_running(self) -> bool:
        return self._core is not None

    # ---- start and stop --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory and listen. Raises the error that prevents it."""
        if self._core is not None:
            return
        if not self.starts:
            self._keep_ports()
        await self.nursery.start(self.run)
        self.starts += 1

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run one life of the broker, until it is stopped."""
        self._fs = FaultyFileSystem(
            self.disk_faults, in_memory=_lies_in_memory(self.directory), permissions=self.config.data_permissions
        )
        self._stop, self._ended = trio.Event(), trio.Event()
        try:
            async with open_broker_core(self.config, fs=self._fs, clock=self._server_clock()) as core:
                try:
                    failure = await self._serve(core, task_status)
                finally:
                    if self._odd_logs is not None:
                        await self._odd_logs.settle(core)
                if failure is not None:
                    raise failure
        finally:
            self._core = None
            self._ended.set()

    def _server_clock(self) -> ServerClock:
        is_checked = self.checks_clock and self.config.clock_check
        return ServerClock(
            self.clock.now_ms, self.clock.current_time if is_checked else trio.current_time, is_checked=is_checked
        )

    async def _serve(self, core: Broker, task_status: trio.TaskStatus[None]) -> BaseException | None:
        """Listen until stopped; answers why it could not, outside of the nursery, which would wrap it in a group."""
        failure: BaseException | None = None
        async with trio.open_nursery() as serving:
            self._serving = serving.cancel_scope
            try:
                if self._prepare is not None:
                    await self._prepare(core)
                if self._odd_logs is not None:
                    self._odd_logs.install(core)
                self.addresses = await self._listen(core, serving)
                self._core = core
                task_status.started()
                await self._stop.wait()
                if self.has_grace and self._listeners is not None:
                    self._listeners.stop(self.config.stop_grace_ms / 1000)
                    return None
            except trio.Cancelled:
                raise
            except BaseException as exc:
                failure = exc
            serving.cancel_scope.cancel()
        return failure

    def _keep_ports(self) -> None:
        keep, wanted = self._ports.keep, self.wanted
        self.wanted = Addresses(keep(wanted.native), keep(wanted.kafka), http=keep(wanted.http))
        if (kafka := self.wanted.kafka) is not None:
            others = [self._ports.keep(Address(kafka.host, 0)) or kafka for _ in range(self.node_count - 1)]
            self._node_addresses = [kafka, *others]

    async def _listen(self, core: Broker, serving: trio.Nursery) -> Addresses:
        if self.wanted.native is None and self.wanted.kafka is None and self.wanted.http is None:
            return Addresses()
        from ..listeners.opening import Listeners  # a broker in a program may do without

        watch = apis = None
        if self.wanted.kafka is not None:
            from .kafka.kafka_versions import apis_of
            from .kafka.watched import Watch

            watch = Watch(self.faults, self.requests, self.clock.now_ms, self.old_formats)
            apis = None if self.kafka_version is None else apis_of(self.kafka_version)
        if watch is None or self.node_count == 1:
            self._listeners = listeners = Listeners(core, watch, apis, self.protocols, self._ports.listen)
            self._admission = listeners.admission
            return await listeners.start(serving, self.wanted, advertised=self.config.kafka_advertised)
        from .kafka.node_listeners import listen_as_nodes, nodes_of

        native = Listeners(core, protocols=self.protocols, open_sockets=self._ports.listen)
        self._admission = native.admission
        addresses = await native.start(serving, Addresses(self.wanted.native, http=self.wanted.http))
        self.nodes = self.nodes or nodes_of(core.node_id, self._node_addresses)
        self._node_listeners = await listen_as_nodes(core, self.nodes, native, watch, apis, serving)
        return attrs.evolve(addresses, kafka=self.wanted.kafka)

    # ---- nodes -----------------------------------------------------------------------------------------------------------

    def _nodes(self) -> Nodes:
        if self.nodes is None:
            raise ValueError("the broker is a single node. Open it with nodes=3")
        return self.nodes

    def _node(self, number: int) -> NodeListener:
        self._nodes()
        if number not in self._node_listeners:
            raise KeyError(f"node {number}. Nodes: {sorted(self._node_listeners)}")
        return self._node_listeners[number]

    async def node_down(self, number: int) -> None:
        """Cut a node's connections and refuse new ones. Its leaders move to the next node that is up. Raises KeyError."""
        node = self._node(number)
        nodes = self._nodes()
        moved = [each for each in _partitions(self.core) if nodes.leader_of(*each) == number]
        nodes.down.add(number)
        await node.stop()
        for each in moved:
            await self._moved(each)

    async def node_up(self, number: int) -> None:
        """Listen again, on the same port. Raises KeyError."""
        node = self._node(number)
        nodes = self._nodes()
        before = {each: nodes.leader_of(*each) for each in _partitions(self.core)}
        await node.start()
        nodes.down.discard(number)
        for each, leader in before.items():
            if nodes.leader_of(*each) != leader:
                await self._moved(each)

    async def move_leader(self, topic: str, partition: int, node: int) -> int:
        """Let another node lead a partition, and return its new leader epoch. Raises KeyError, RequestError."""
        self._node(node)
        moved = TopicPartition(topic, partition)
        epoch = await self.core.logs.raise_leader_epoch(moved)
        self._nodes().move_leader(topic, partition, node)
        self.core.shares.move(moved)
        return epoch

    async def _moved(self, topic_partition: TopicPartition) -> None:
        """Another node leads it now. What share groups have of it is forgotten where nothing is stored, as by a new leader."""
        await self.core.logs.raise_leader_epoch(topic_partition)
        self.core.shares.move(topic_partition)

    def move_coordinator(self, name: str, node: int) -> None:
        """Let another node coordinate a group or a transactional id. Raises KeyError."""
        self._node(node)
        self._nodes().move_coordinator(name, node)

    def advertise(self, address: Address, node: int | None = None) -> None:
        """Send Kafka clients to this address from now on, over all lives. Raises KeyError for an unknown node, and ValueError
        without a Kafka listener, or without `node` if there are several."""
        if self.wanted.kafka is None:
            raise ValueError("the broker has no Kafka listener. Start it with --kafka HOST:PORT")
        if node is not None:
            from ..listeners.kafka.door import Node  # a broker in a program may do without

            self._node(node)
            self._nodes().advertised[node] = Node(node, address.host, address.port)
        elif self.node_count > 1:
            raise ValueError(f"node is missing: the broker looks like {self.node_count} nodes")
        else:
            self.config = attrs.evolve(self.config, kafka_advertised=address)
            if self._listeners is not None and self._listeners.kafka_door is not None:
                self._listeners.kafka_door.advertised = address

    async def stop(self) -> None:
        """An orderly stop: everything is flushed, the directory is marked clean. A broker that is down stays down."""
        if self._core is not None:
            self._core = None
            self._stop.set()
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    async def restart(self) -> None:
        """Start again where it is down; stop in order and start where it runs. The ports stay the same."""
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        """End as by SIGKILL; see the module. With `torn` faults some unsynced writes are lost, too."""
        if self._core is None:
            return
        self._fs.crash()
        self._serving.cancel()
        await self.stop()
        self.torn_files = await trio.to_thread.run_sync(self._fs.tear) if self.disk_faults.is_active else []

    async def serve_registry(self, address: Address) -> Address:
        """Start the schema registry, unless it is started, and return its address. It serves through all lives. Raises
        InvalidConfigError, OSError."""
        if self.registry is None:
            from ..registry.opening import serve_registry  # most brokers do without

            self.registry = await self.nursery.start(serve_registry, address, lambda: self._core)
        assert self.registry is not None
        return self.registry

    def close(self) -> None:
        """Give the ports back."""
        self._ports.close()

    def after_fork(self) -> None:
        """End this copy in a forked process, so that it does not touch the files of the parent."""
        if self._core is not None:
            self._fs.crash()
        self._core = None
        self._is_forked = True
        self.close()

    # ---- the directory ---------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return Path(self.config.data_dirs[0])

    async def _wipe(self) -> None:
        """Start with an empty directory, at once: old data is not flushed before it goes."""
        with self._ports.held(self._hand_over()):
            await self.crash()
            if self.nodes is not None:
                self.nodes.forget_moves()
            await trio.to_thread.run_sync(_empty, self.directory, KEPT_FILES)
            await self.start()

    def _hand_over(self) -> dict[Address, list[socket]]:
        """Connections of Kafka clients that go on in the next life, by the address that they were accepted on."""
        if self._core is None or self._admission is None or self.wanted.kafka is None:
            return {}
        from .kafka.node_listeners import hand_over

        return {each.address: list(hand_over(each)) for each in self._admission.listeners}

    async def reset(self, prepare: Prepare | None = None) -> None:
        """Be as at the beginning: an empty directory, no faults, no requests, the system's time; then `prepare` fills the
        broker before clients see it. It is the same cluster on the same ports, which go on listening. Kafka clients without a
        login or TLS stay connected, others connect again at once. One that lives on keeps its producer id, which no other is
        given."""
        self._prepare = prepare
        self.faults.clear()
        self.disk_faults.clear()
        self.clock.reset()
        if self.tokens is not None:
            self.tokens.reset()
        try:
            await self._wipe()
        finally:
            self._prepare = None
        self._odd_logs = None
        self.old_formats.clear()
        self.requests.clear()

    async def snapshot(self, target: Path, *, durable: bool = True) -> None:
        """Put a consistent copy of the directory into `target`, which is empty or not there; the broker serves meanwhile.
        `durable`: it is on the device when this returns."""
        from ..offline.backup import make_backup, plan_backup

        fs = (OsFileSystem if durable else UnsyncedFileSystem)(self.config.data_permissions)

        def copy() -> None:
            def wait() -> None:
                trio.from_thread.run(trio.sleep, BACKUP_WAIT_S)

            plan = plan_backup(fs, str(self.directory), wait)
            make_backup(fs, plan, str(target), wait, links=False)

        await trio.to_thread.run_sync(copy)


class UnsyncedFileSystem(OsFileSystem):
    """For a copy that ends with the process: nothing is forced to the device."""

    def sync(self, fd: int) -> None:
        """Not needed."""

    def sync_directory(self, path: str) -> None:
        """Not needed."""


def _lies_in_memory(directory: Path) -> bool:
    """False where there is no such directory yet: then it is a user's own."""
    try:
        return lies_in_memory(directory.stat().st_dev)
    except OSError:
        return False


def _partitions(core: Broker) -> list[TopicPartition]:
    """Those that are served."""
    return [
        TopicPartition(name, number)
        for name in core.topics.names()
        for number, epoch in enumerate(core.topics.metadata(name).leader_epochs)
        if isinstance(epoch, int)
    ]


def _empty(directory: Path, kept: Collection[str]) -> None:
    """Delete everything but the files `kept`."""
    for path in directory.iterdir():
        if path.name in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@asynccontextmanager
async def told_over_http(config: BrokerConfig, life: Life) -> AsyncIterator[Address | None]:
    """Answer `/metrics`, `/livez` and `/readyz` for the time of the block, if they are wanted, through all lives of the broker.
    What HTTP and metrics need is loaded here: most brokers have none."""
    if config.metrics is None:
        yield None
        return
    from ..listeners.http.health import telling

    def fired() -> list[tuple[str, int]]:
        disk = [(f"disk-{fault.number}", fault.fired) for fault in life.disk_faults]
        return [(str(fault.number), fault.fired) for fault in life.faults] + disk

    async with telling(config.metrics, config.metrics_token_file) as (health, address):
        health.following(lambda: life.core if life.is_running else None, life.protocols, fired)
        yield address


T = TypeVar("T")

EMBEDDED: Final = "embedded"
CONTROL: Final = "control"


async def noted(broker: Broker, door: str, api: str, names: Iterable[str], change: Awaitable[T]) -> T:
    """Apply a change, and note it in the audit log with its outcome, if there is one. Values are not among the names."""
    try:
        result = await change
    except RequestError as exc:
        _note(broker, door, api, names, [exc.code.name])
        raise
    _note(broker, door, api, names, [])
    return result


def _note(broker: Broker, door: str, api: str, names: Iterable[str], errors: list[str]) -> None:
    if (audit := broker.security.audit) is not None:
        nobody = {"principal": None, "host": None, "client_id": None}
        audit.note("change", **nobody, protocol=door, api=api, names=list(names), errors=errors)


Topics = Sequence[str] | Mapping[str, int]
"""Names, or names with numbers of partitions."""


@attrs.frozen
class Seed:
    """Topics, and the records that they begin with."""

    topics: Mapping[str, int] = attrs.field(factory=dict)
    records: Mapping[str, Sequence[PlainRecord | Text]] = attrs.field(factory=dict)
    """By topic, for its partition 0: values, or (timestamp in ms or None, key, value, headers)."""

    @classmethod
    def of(cls, topics: Topics, records: Mapping[str, Sequence[PlainRecord | Text]]) -> Self:
        """Raises TypeError for text in place of a list, whose characters would become names or records."""
        if isinstance(topics, str | bytes):
            raise TypeError(f"topics is {topics!r}, expected a list of names or a mapping: topics=[{topics!r}]")
        for name, given in records.items():
            if isinstance(given, str | bytes):
                raise TypeError(f"records of {name} are {given!r}, expected a list: records={{{name!r}: [{given!r}]}}")
        counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        return cls({**dict.fromkeys(records, 1), **counts}, records)

    async def put(self, core: Broker) -> None:
        """Create the missing topics, and append their records. Raises RequestError."""
        there = set(core.topics.names())
        for name, partitions in self.topics.items():
            if name in there:
                continue
            await core.topics.create(name, partitions)
            if plain := [_plain(record) for record in self.records.get(name, ())]:
                await core.writer.append(TopicPartition(name, 0), plain)


def _plain(record: PlainRecord | Text) -> PlainRecord:
    return record if isinstance(record, tuple) else (None, None, as_bytes(record), ())
