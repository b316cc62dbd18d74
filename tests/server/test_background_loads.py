"""What a coordinator reads at the start and cannot use never ends the start: every later one would end in it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.groups.classic.groups import ClassicGroups
from triolog.server.logs import log_opening
from triolog.server.offsets.group_offsets import GroupOffsets
from triolog.server.sharing import state_log
from triolog.server.stages import stage_commit_log
from triolog.server.transactions import transactional_ids

from tests.support.brokers import TOPIC, running_broker, value, values_from
from tests.support.transactions import TransactionalProducer

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
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker:
        await fill(broker)
    owner, function = LOADS[what]
    original, calls = getattr(owner, function), list[object]()

    def fails_once(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise ZeroDivisionError("injected")
        return original(*arguments, **more)

    monkeypatch.setattr(owner, function, fails_once)
    async with running_broker(tmp_path) as broker:
        assert "unhandled exception: " in caplog.text
        served = [each.error is None for each in broker.topics.describe(TOPIC).partitions]
        assert served == [True, True] if what != "a log" else any(served)
        number = served.index(True)
        assert await values_from(broker, TopicPartition(TOPIC, number)) == [str(number).encode()]
    async with running_broker(tmp_path) as broker:
        assert broker._coordinators.committed_offsets.topic.readable()
        assert len(list(broker.transactions.states())) == 2
        assert broker.stage_commits.last_version("one") == 1
