"""What a test may ask of a broker from outside: each call takes the fields of a JSON object and answers JSON.

`routes` says under which method and path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ...protocol.types import TopicPartition
from ..faults.requests import Wanted
from ..listeners.connections.counters import ProtocolCounters
from .audited import CONTROL, noted
from .life import Life
from .seed import Seed
from .values import BadRequestError, plain_record, told_record, whole_number, yes_or_no
from .views.fault_views import FaultsView, FaultView, RequestsView
from .views.groups_view import GroupsView, MemberView
from .views.log_view import LogView
from .views.share_groups_view import ShareGroupsView
from .views.streams_groups_view import StreamsGroupsView
from .waiting import PATIENCE_S

Told = Mapping[str, Any]

WANTED: Final = frozenset(field.name for field in attrs.fields(Wanted))
"""What requests are chosen by."""
_NUMBERS: Final = ("node", "after")


@attrs.define(eq=False, repr=False)
class ControlApi:
    """Answers the requests of one control port."""

    life: Life
    seed: Seed = attrs.field(factory=Seed)
    faults: FaultsView = attrs.field(init=False)
    requests: RequestsView = attrs.field(init=False)
    groups: GroupsView = attrs.field(init=False)
    share_groups: ShareGroupsView = attrs.field(init=False)
    streams_groups: StreamsGroupsView = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.faults = FaultsView(self.life.faults, self.life.disk_faults)
        self.requests = RequestsView(self.life.requests)
        self.groups = GroupsView(lambda: self.life.core, self.faults)
        self.share_groups = ShareGroupsView(lambda: self.life.core)
        self.streams_groups = StreamsGroupsView(lambda: self.life.core)

    # ---- faults and requests ---------------------------------------------------------------------------------------------

    async def add_fault(self, _names: list[str], told: Told) -> Any:
        return self.faults.add_rule(dict(told)).fault.as_json()

    async def list_faults(self, _names: list[str], _told: Told) -> Any:
        return [view.fault.as_json() for view in self.faults]

    async def clear_faults(self, _names: list[str], _told: Told) -> Any:
        self.life.faults.clear()
        return {}

    async def get_fault(self, names: list[str], _told: Told) -> Any:
        return _rule(self.faults.get, names).fault.as_json()

    async def remove_fault(self, names: list[str], _told: Told) -> Any:
        _rule(self.faults.get, names).remove()
        return {}

    async def release_fault(self, names: list[str], _told: Told) -> Any:
        return _released(_rule(self.faults.get, names))

    async def wait_fault(self, names: list[str], told: Told) -> Any:
        return await _waited(_rule(self.faults.get, names), told)

    async def add_disk_fault(self, _names: list[str], told: Told) -> Any:
        return self.faults.add_disk_rule(dict(told)).fault.as_json()

    async def list_disk_faults(self, _names: list[str], _told: Told) -> Any:
        return [view.fault.as_json() for view in self.faults.of_disk()]

    async def clear_disk_faults(self, _names: list[str], _told: Told) -> Any:
        self.life.disk_faults.clear()
        return {}

    async def get_disk_fault(self, names: list[str], _told: Told) -> Any:
        return _rule(self.faults.get_disk, names).fault.as_json()

    async def remove_disk_fault(self, names: list[str], _told: Told) -> Any:
        _rule(self.faults.get_disk, names).remove()
        return {}

    async def release_disk_fault(self, names: list[str], _told: Told) -> Any:
        return _released(_rule(self.faults.get_disk, names))

    async def wait_disk_fault(self, names: list[str], told: Told) -> Any:
        return await _waited(_rule(self.faults.get_disk, names), told)

    async def list_requests(self, _names: list[str], told: Told) -> Any:
        last = whole_number(told, "last")
        if last is not None and last < 1:
            raise BadRequestError(f"last is {last}, expected how many at least")
        found = self.requests.find(**_wanted(told))
        return [request.as_json() for request in found[-(last or len(found)) :]]

    async def clear_requests(self, _names: list[str], _told: Told) -> Any:
        self.requests.clear()
        return {}

    async def wait_requests(self, _names: list[str], told: Told) -> Any:
        count = whole_number(told, "count") or 1
        found = await self.requests.wait_for(count=count, timeout_s=_timeout_s(told), **_wanted(told))
        return [request.as_json() for request in found]

    # ---- topics and groups -----------------------------------------------------------------------------------------------

    async def list_topics(self, _names: list[str], _told: Told) -> Any:
        return {name: LogView(lambda: self.life.core, name).end_offsets() for name in self.life.core.topics.names()}

    async def create_topic(self, _names: list[str], told: Told) -> Any:
        name, partitions = str(told.get("name") or ""), whole_number(told, "partitions") or 1
        config = {key: str(value) for key, value in (told.get("config") or {}).items()}
        core = self.life.core
        await noted(core, CONTROL, "POST /topics", [name], core.topics.create(name, partitions, config))
        return {"name": name, "partitions": partitions}

    async def delete_topic(self, names: list[str], _told: Told) -> Any:
        core = self.life.core
        await noted(core, CONTROL, "DELETE /topics", names, core.topics.delete(names[0]))
        return {}

    def _log(self, names: list[str]) -> LogView:
        return LogView(lambda: self.life.core, names[0])

    async def read_records(self, names: list[str], told: Told) -> Any:
        log, offset = self._log(names), whole_number(told, "offset") or 0
        partition = whole_number(told, "partition")
        numbers = list(log.end_offsets()) if partition is None else [partition]
        return [told_record(record, number) for number in numbers for record in await log.records(number, offset=offset)]

    async def append_records(self, names: list[str], told: Told) -> Any:
        topic_partition = TopicPartition(names[0], whole_number(told, "partition") or 0)
        said = told.get("records") or []
        if not isinstance(said, list):
            raise BadRequestError(f"records is {said!r}, expected a list")
        records = [plain_record(each) for each in said]
        result = await self.life.core.writer.append(topic_partition, records)
        return {"base_offset": result.base_offset, "count": len(records)}

    async def wait_records(self, names: list[str], told: Told) -> Any:
        partition, count = whole_number(told, "partition"), whole_number(told, "count") or 1
        await self._log(names).wait_for(count, partition=partition, timeout_s=_timeout_s(told))
        return await self.read_records(names, told)

    async def compact(self, names: list[str], told: Told) -> Any:
        return {"rounds": await self._log(names).compact(whole_number(told, "partition"))}

    async def describe_group(self, names: list[str], told: Told) -> Any:
        topic = told.get("topic")
        committed, is_known = await self.groups.committed(names[0], topic), self.groups.is_known(names[0])
        return {
            "committed": [
                {"topic": each.topic, "partition": each.partition, "offset": offset} for each, offset in committed.items()
            ],
            "lag": await self.groups.lag(names[0], topic) if is_known else None,
            "state": self.groups.state(names[0]),
            "members": [_member(each) for each in self.groups.members(names[0])],
        }

    async def wait_assigned(self, names: list[str], told: Told) -> Any:
        await self.groups.wait_assigned(names[0], whole_number(told, "members") or 1, timeout_s=_timeout_s(told))
        return await self.describe_group(names, told)

    async def kick_member(self, names: list[str], told: Told) -> Any:
        await self.groups.kick(names[0], str(told.get("member_id") or ""))
        return {}

    async def rebalance_group(self, names: list[str], _told: Told) -> Any:
        return self.groups.rebalance(names[0]).fault.as_json()

    async def wait_group(self, names: list[str], told: Told) -> Any:
        await self.groups.wait_no_lag(names[0], str(told.get("topic") or ""), timeout_s=_timeout_s(told))
        return await self.describe_group(names, told)

    async def freeze_group(self, names: list[str], _told: Told) -> Any:
        return self.groups.freeze(names[0]).fault.as_json()

    async def list_share_groups(self, _names: list[str], _told: Told) -> Any:
        return self.share_groups.groups()

    async def describe_share_group(self, names: list[str], told: Told) -> Any:
        return self.share_groups.as_json(names[0], told.get("topic"))

    async def wait_share_group(self, names: list[str], told: Told) -> Any:
        await self.share_groups.wait_done(names[0], str(told.get("topic") or ""), timeout_s=_timeout_s(told))
        return await self.describe_share_group(names, told)

    async def list_streams_groups(self, _names: list[str], _told: Told) -> Any:
        return self.streams_groups.groups()

    async def describe_streams_group(self, names: list[str], _told: Told) -> Any:
        return await self.streams_groups.as_json(names[0])

    async def wait_streams_group(self, names: list[str], told: Told) -> Any:
        await self.streams_groups.wait_done(names[0], timeout_s=_timeout_s(told))
        return await self.describe_streams_group(names, told)

    async def wait_streams_stable(self, names: list[str], told: Told) -> Any:
        members = whole_number(told, "members")
        await self.streams_groups.wait_stable(names[0], 1 if members is None else members, timeout_s=_timeout_s(told))
        return await self.describe_streams_group(names, told)

    async def wait_streams_status(self, names: list[str], told: Told) -> Any:
        await self.streams_groups.wait_status(names[0], str(told.get("status") or ""), timeout_s=_timeout_s(told))
        return await self.describe_streams_group(names, told)

    # ---- nodes -----------------------------------------------------------------------------------------------------------

    async def node_down(self, names: list[str], _told: Told) -> Any:
        await self.life.node_down(int(names[0]))
        return {}

    async def node_up(self, names: list[str], _told: Told) -> Any:
        await self.life.node_up(int(names[0]))
        return {}

    async def move_leader(self, _names: list[str], told: Told) -> Any:
        topic, partition = str(told.get("topic") or ""), whole_number(told, "partition") or 0
        return {"leader_epoch": await self.life.move_leader(topic, partition, whole_number(told, "node") or 0)}

    async def move_coordinator(self, _names: list[str], told: Told) -> Any:
        self.life.move_coordinator(str(told.get("name") or ""), whole_number(told, "node") or 0)
        return {}

    # ---- clock and life --------------------------------------------------------------------------------------------------

    async def state(self, _names: list[str], _told: Told) -> Any:
        addresses = {name: str(each) for name, each in attrs.asdict(self.life.addresses, recurse=False).items() if each}
        topics = list(self.life.core.topics.names()) if self.life.is_running else []
        connections = {name: _counted(each) for name, each in self.life.protocols.items()}
        life = {"is_running": self.life.is_running, "starts": self.life.starts}
        return {**life, **addresses, "nodes": _nodes(self.life), "topics": topics, "connections": connections}

    async def clock(self, _names: list[str], _told: Told) -> Any:
        return {"now_ms": self.life.clock.now_ms(), "is_frozen": self.life.clock.frozen_ms is not None}

    async def advance_clock(self, names: list[str], told: Told) -> Any:
        seconds = told.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise BadRequestError(f"seconds is {seconds!r}, expected a number")
        self.life.clock.advance(seconds)
        return await self.clock(names, told)

    async def freeze_clock(self, names: list[str], told: Told) -> Any:
        self.life.clock.freeze()
        return await self.clock(names, told)

    async def unfreeze_clock(self, names: list[str], told: Told) -> Any:
        self.life.clock.unfreeze()
        return await self.clock(names, told)

    async def crash(self, names: list[str], told: Told) -> Any:
        await self.life.crash()
        return {**await self.state(names, told), "torn_files": self.life.torn_files}

    async def stop(self, names: list[str], told: Told) -> Any:
        await self.life.stop()
        return await self.state(names, told)

    async def restart(self, names: list[str], told: Told) -> Any:
        await self.life.restart()
        return await self.state(names, told)

    async def reset(self, names: list[str], told: Told) -> Any:
        gone = list(self.life.core.topics.names()) if self.life.is_running else []
        await self.life.reset(lambda core: noted(core, CONTROL, "POST /reset", gone, self.seed.put(core)))
        return await self.state(names, told)

    async def retention(self, _names: list[str], _told: Told) -> Any:
        return {"segments": await self.life.core.logs.apply_retention()}

    async def snapshot(self, _names: list[str], told: Told) -> Any:
        if not isinstance(path := told.get("path"), str):
            raise BadRequestError("path is missing: where the copy goes")
        await self.life.snapshot(Path(path))
        return {"path": path}


def _rule(get: Callable[[int], FaultView], names: list[str]) -> FaultView:
    return get(int(names[0]))


def _released(view: FaultView) -> Any:
    view.release()
    return view.fault.as_json()


async def _waited(view: FaultView, told: Told) -> Any:
    await view.wait_fired(whole_number(told, "times") or 1, timeout_s=_timeout_s(told))
    return view.fault.as_json()


def _nodes(life: Life) -> list[dict[str, Any]]:
    """Those of several that look like a cluster, up or down."""
    if life.nodes is None:
        return []
    down = life.nodes.down
    return [
        {"node": number, "address": f"{node.host}:{node.port}", "is_up": number not in down}
        for number, node in life.nodes.addresses.items()
    ]


def _counted(protocol: ProtocolCounters) -> dict[str, int]:
    """What the connections of a protocol have counted, over all lives of the broker."""
    names = ("connections", "accepted", "refused", "received_bytes", "sent_bytes")
    return {name: getattr(protocol, name) for name in names}


def _member(member: MemberView) -> dict[str, Any]:
    partitions = [{"topic": each.topic, "partition": each.partition} for each in member.partitions]
    return {**member._asdict(), "partitions": partitions}


def _wanted(told: Told) -> dict[str, Any]:
    """Behind a `?` everything is text."""
    wanted = {name: value for name, value in told.items() if name in WANTED}
    for name in _NUMBERS:
        if name in wanted:
            wanted[name] = whole_number(told, name)
    if "answered" in wanted:
        wanted["answered"] = yes_or_no(told, "answered")
    return wanted


def _timeout_s(told: Told) -> float:
    timeout_ms = whole_number(told, "timeout_ms")
    return PATIENCE_S if timeout_ms is None else timeout_ms / 1000
