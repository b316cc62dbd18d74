"""Topics: their map, their growth, limit and configuration, in effect when a call returns and after a restart; and the
coordinators' own topics."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest
import trio
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidConfigError,
    InvalidTopicError,
    RequestError,
    UnknownTopicOrPartitionError,
)
from triolog.protocol.records.batch import BatchHeader
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import AppendResult, Bytes, TopicPartition
from triolog.server.broker import Broker
from triolog.server.config import LogConfig
from triolog.server.logs.internal_topic import InternalTopic
from triolog.server.logs.topics import HostedTopic, OfflinePartition, Topics
from triolog.server.storage.directory.topics_file import (
    CREATIONS_FILE,
    TOPICS_FILE,
    Creation,
    Topic,
    decode_topics,
    encode_creations,
)
from triolog.server.storage.disk.checkpoints import decode_uuid, random_uuid
from triolog.server.storage.errors import LogOfflineError
from triolog.server.storage.log.changes import truncate_to

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.case_blind_fs import CaseBlindFileSystem
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock


def stored_configs(directory: Path) -> dict[str, str]:
    """What topics.json says of the topic."""
    _, topics = decode_topics(TOPICS_FILE, (directory / TOPICS_FILE).read_bytes())
    return next(topic.configs for topic in topics if topic.name == TOPIC)


def segments(broker: Broker) -> int:
    return len(actor_of(broker).log.segments)


async def test_a_change_keeps_the_entry_of_a_topic_whose_directories_still_have_their_names(
    tmp_path: Path, fs: GateFileSystem
) -> None:
    """After a kill, a start would adopt them with the server's defaults."""
    async with one_partition(tmp_path, fs=fs) as broker:
        await broker.topics.alter_configs(TOPIC, {"retention.ms": "7"})
        async with held(fs.hold("rename", f"{TOPIC}-0"), broker.topics.delete, TOPIC):
            await broker.topics.create("other")
            assert stored_configs(tmp_path) == {"retention.ms": "7"}
    async with running_broker(tmp_path) as broker:
        assert list(broker.topics.names()) == ["other"]


async def test_a_changed_configuration_is_in_effect_at_once_and_after_a_restart(tmp_path: Path, fs: GateFileSystem) -> None:
    """Unless the disk refuses it."""
    async with one_partition(tmp_path, fs=fs) as broker:
        for _ in range(3):
            await broker.writer.append(PARTITION, value("x"))
        await broker.topics.alter_configs(TOPIC, {"segment.bytes": "100"}, validate_only=True)
        assert stored_configs(tmp_path) == broker.topics.describe(TOPIC).config == {}
        fs.fail("write", f"{TOPICS_FILE}.tmp", number=errno.ENOSPC)
        with pytest.raises(LogOfflineError, match="is unchanged"):
            await broker.topics.alter_configs(TOPIC, {"segment.bytes": "100"})
        assert actor_of(broker).config.segment_bytes != 100
        assert stored_configs(tmp_path) == broker.topics.describe(TOPIC).config == {}
        assert segments(broker) == 1
        await broker.topics.alter_configs(TOPIC, {"segment.bytes": "100", "retention.ms": "1"})
        assert broker.topics.describe_config(TOPIC)["segment.bytes"] == ("100", "topic")
        assert stored_configs(tmp_path) == {"segment.bytes": "100", "retention.ms": "1"}
        for _ in range(2):
            await broker.writer.append(PARTITION, value("x"))
        assert segments(broker) == 3
        await broker.topics.alter_configs(TOPIC, {}, ["retention.ms"])
    async with one_partition(tmp_path) as broker:
        assert broker.topics.describe(TOPIC).config == {"segment.bytes": "100"}
        assert broker.topics.describe_config(TOPIC)["retention.ms"][1] == "default"


async def test_where_the_file_system_ignores_case_no_two_topics_differ_in_it_alone(tmp_path: Path) -> None:
    """Their partitions would share their files. Partitions that are added, and a name that was deleted, are no new topic."""
    async with running_broker(tmp_path, fs=CaseBlindFileSystem(str(tmp_path))) as broker:
        await broker.topics.create("Orders")
        with pytest.raises(InvalidTopicError, match=f"'orders' differs from 'Orders' only in .* file system of {tmp_path}"):
            await broker.topics.create("orders")
        await broker.topics.create_partitions("Orders", 2)
        await broker.topics.delete("Orders")
        await broker.topics.create("orders")
        assert list(broker.topics.names()) == ["orders"]
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("Orders")


@pytest.mark.parametrize(
    ("changes", "deletes", "said"),
    [
        ({"no.such.key": "1"}, [], "no.such.key"),
        ({}, ["no.such.key"], "no.such.key"),
        ({"segment.bytes": "5"}, [], "5 is not in 14..2147483647"),
        ({"retention.ms": "-2"}, [], "-2 is not in -1.."),
        ({"disk.full.policy": "panic"}, [], "not one of refuse, drop-oldest"),
        ({"retention.ms": "5"}, ["retention.ms"], "both set and deleted"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, [], "is above"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_range_and_changes_nothing(
    tmp_path: Path, broker: Broker, changes: dict[str, str], deletes: list[str], said: str
) -> None:
    before = broker.topics.describe_config(TOPIC)
    for validate_only in (True, False):
        with pytest.raises(InvalidConfigError) as raised:
            await broker.topics.alter_configs(TOPIC, changes, deletes, validate_only=validate_only)
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert said in raised.value.message
    assert broker.topics.describe_config(TOPIC) == before
    assert stored_configs(tmp_path) == {}


async def test_an_unknown_key_of_a_lenient_server_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        with pytest.raises(InvalidConfigError):
            await broker.topics.create(TOPIC, 1, {"no.such.key": "1"})
        await broker.topics.create(TOPIC, 1, {"no.such.key": "1"}, lenient=True)
        assert "unknown keys" in caplog.text
    async with one_partition(tmp_path) as broker:
        kept = {"unclean.leader.election.enable": "true", "message.format.version": "2.0"}
        await broker.topics.alter_configs(TOPIC, {"retention.ms": "5", **kept})
        shown = broker.topics.describe_config(TOPIC)
        assert {key: shown[key] for key in kept} == {key: (text, "topic") for key, text in kept.items()}
        await broker.topics.alter_configs(TOPIC, {}, list(kept))
        assert broker.topics.describe_config(TOPIC)["no.such.key"] == ("1", "topic")
        with pytest.raises(InvalidConfigError):
            await broker.topics.alter_configs(TOPIC, {"no.such.key": "2"})
        await broker.topics.change_configs(TOPIC, lambda overrides: {**overrides, "no.such.key": "2"}, lenient=True)
        await broker.topics.alter_configs(TOPIC, {}, ["no.such.key"])
    assert stored_configs(tmp_path) == {"retention.ms": "5"}


async def test_an_offline_partition_is_configured_at_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 2)
        actor_of(broker).take_offline("a test says so")
        await broker.topics.alter_configs(TOPIC, {"segment.bytes": "100"})
        assert "after the next start" in caplog.text
        assert actor_of(broker, TopicPartition(TOPIC, 1)).config.segment_bytes == 100


async def test_a_topic_grows_and_keeps_what_it_has(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topic_id = await broker.topics.create(TOPIC, 2, {"segment.bytes": "1000"})
        await broker.writer.append(TopicPartition(TOPIC, 1), value("kept"))
        await broker.topics.create_partitions(TOPIC, 4)
        await broker.writer.append(TopicPartition(TOPIC, 3), value("new"))
    async with running_broker(tmp_path) as broker:
        description = broker.topics.describe(TOPIC)
        assert (description.topic_id, len(description.partitions)) == (topic_id, 4)
        assert await values_from(broker, TopicPartition(TOPIC, 1)) == [b"kept"]
        assert await values_from(broker, TopicPartition(TOPIC, 3)) == [b"new"]
        assert actor_of(broker, TopicPartition(TOPIC, 3)).config.segment_bytes == 1000


async def test_partitions_are_on_the_device_before_they_are_seen(broker: Broker, fs: GateFileSystem) -> None:
    async with held(fs.hold("sync", f"{TOPICS_FILE}.tmp"), broker.topics.create_partitions, TOPIC, 2):
        with pytest.raises(RequestError, match="partitions 0 to 0"):
            await broker.writer.append(TopicPartition(TOPIC, 1), value("x"))


async def test_a_stray_partition_is_adopted_by_the_next_growth(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(tmp_path) as broker:
        await broker.topics.create_partitions(TOPIC, 2)
        older = (tmp_path / TOPICS_FILE).read_bytes()
        await broker.topics.create_partitions(TOPIC, 3)
    (tmp_path / TOPICS_FILE).write_bytes(older)
    async with one_partition(tmp_path) as broker:
        assert len(broker.topics.describe(TOPIC).partitions) == 2
        assert [each.stray for each in broker.directories.describe()] == [(str(tmp_path / "topic-2"),)]
        await broker.topics.create_partitions(TOPIC, 3)
        await broker.writer.append(TopicPartition(TOPIC, 2), value("x"))
    assert "topic-2 ignored" in caplog.text


class Blind(GateFileSystem):
    """The directory cannot be listed once: no descriptor is left."""

    is_blind = False

    def list_directory(self, path: str) -> list[str]:
        if self.is_blind and path.endswith("topic-1"):
            self.is_blind = False
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().list_directory(path)


async def test_records_in_the_way_stay_also_when_their_directory_cannot_be_listed(tmp_path: Path) -> None:
    fs = Blind()
    async with one_partition(tmp_path) as broker:
        older = (tmp_path / TOPICS_FILE).read_bytes()
        await broker.topics.create_partitions(TOPIC, 2)
        await broker.writer.append(TopicPartition(TOPIC, 1), value("precious"))
    (tmp_path / TOPICS_FILE).write_bytes(older)
    async with one_partition(tmp_path, fs=fs) as broker:
        fs.is_blind = True
        for said in ("cannot check .*topic-1", "holds records of a partition that is not served. Move it away first"):
            with pytest.raises(LogOfflineError, match=said):
                await broker.topics.create_partitions(TOPIC, 2)
            assert b"precious" in (tmp_path / "topic-1" / f"{0:020d}.log").read_bytes()


def cut_off(directory: Path, name: str, topic_id: str, older: bytes, *, partitions: int = 9) -> None:
    """Let it look as if the server had ended while it made that, with an older list of topics."""
    (directory / TOPICS_FILE).write_bytes(older)
    generation, _ = decode_topics(TOPICS_FILE, older)
    creation = Creation(name=name, topic_id=decode_uuid(topic_id), first_partition=0, partitions=partitions)
    (directory / CREATIONS_FILE).write_bytes(encode_creations(generation, [creation]))


async def test_a_creation_is_on_the_device_before_its_first_directory(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path, fs=fs, durability="fsync") as broker:
        fs.calls.clear()
        await broker.topics.create(TOPIC, 30)
        calls = [(call.operation, call.path.removeprefix(f"{tmp_path}/")) for call in fs.calls]
        synced = [place for place, call in enumerate(calls) if call == ("sync_directory", str(tmp_path))]
        assert calls.index(("sync", f"{CREATIONS_FILE}.tmp")) < calls.index(("rename", f"{CREATIONS_FILE}.tmp")) < synced[0]
        assert synced[0] < calls.index(("make_directory", f"{TOPIC}-0"))
        last = calls.index(("make_directory", f"{TOPIC}-29"))
        assert last < calls.index(("rename", f"{TOPICS_FILE}.tmp")) < synced[-1] < calls.index(("unlink", CREATIONS_FILE))
        assert [call for call in calls if CREATIONS_FILE in call[1]].count(("sync", f"{CREATIONS_FILE}.tmp")) == 1
        assert not (tmp_path / CREATIONS_FILE).exists()


@pytest.mark.parametrize("has_list", [True, False])
async def test_partitions_with_records_are_adopted(tmp_path: Path, caplog: pytest.LogCaptureFixture, has_list: bool) -> None:
    """A person has put them there, from another server or from a copy. Without a list of topics all are adopted."""
    async with running_broker(tmp_path) as broker:
        older = (tmp_path / TOPICS_FILE).read_bytes()
        topic_id = await broker.topics.create(TOPIC, 2)
        await broker.writer.append(TopicPartition(TOPIC, 1), value("precious"))
    cut_off(tmp_path, TOPIC, topic_id, older)
    if not has_list:
        (tmp_path / TOPICS_FILE).unlink()
    async with running_broker(tmp_path) as broker:
        assert ("topic topic: 0 to 8" in caplog.text) is has_list
        assert await values_from(broker, TopicPartition(TOPIC, 1)) == [b"precious"]
        assert (tmp_path / f"{TOPIC}-0").exists() is not has_list
        assert not has_list or not (tmp_path / CREATIONS_FILE).exists()


async def test_an_unreadable_list_of_creations_is_logged_and_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(tmp_path) as broker:
        await broker.writer.append(PARTITION, value("x"))
    (tmp_path / CREATIONS_FILE).write_bytes(b"{")
    async with running_broker(tmp_path) as broker:
        assert await values_from(broker) == [b"x"]
        assert f"{CREATIONS_FILE}" in caplog.text
        assert not (tmp_path / CREATIONS_FILE).exists()


async def test_a_directory_that_was_out_of_service_loses_what_was_being_made_when_it_is_back(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two) as broker:
        older = [(path / TOPICS_FILE).read_bytes() for path in (one, two)]
        topic_id = await broker.topics.create(TOPIC, 4)
    for path, data in zip((one, two), older, strict=True):
        cut_off(path, TOPIC, topic_id, data, partitions=4)
    async with running_broker(one) as broker:
        assert list(broker.topics.names()) == []
        await broker.topics.create(TOPIC, 3, {"retention.ms": "5"})
    async with running_broker(one, two) as broker:
        assert len(broker.topics.describe(TOPIC).partitions) == 3
        assert broker.topics.describe(TOPIC).config == {"retention.ms": "5"}
        assert not list(two.glob(f"{TOPIC}-*"))


async def test_creations_are_kept_while_a_directory_has_older_topics(tmp_path: Path, fs: GateFileSystem) -> None:
    """The first one has the topic already, the second one has no space for its entry when the server starts again."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two) as broker:
        older = (two / TOPICS_FILE).read_bytes()
        topic_id = await broker.topics.create(TOPIC, 2, {"retention.ms": "5"})
    cut_off(one, TOPIC, topic_id, (one / TOPICS_FILE).read_bytes(), partitions=2)
    cut_off(two, TOPIC, topic_id, older, partitions=2)
    fs.fail("write", f"two/{TOPICS_FILE}.tmp", times=None)
    async with running_broker(one, two, fs=fs) as broker:
        assert broker.topics.describe(TOPIC).config == {"retention.ms": "5"}
    async with running_broker(two) as broker:
        assert list(broker.topics.names()) == []
    assert not list(two.glob(f"{TOPIC}-*"))


async def test_leftovers_that_stay_are_reported(tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(tmp_path) as broker:
        older = (tmp_path / TOPICS_FILE).read_bytes()
        topic_id = await broker.topics.create("made", 2)
    cut_off(tmp_path, "made", topic_id, older)
    fs.fail("unlink", "made-1/00000000000000000000.log", number=errno.EIO, times=None)
    async with running_broker(tmp_path, fs=fs) as broker:
        assert list(broker.topics.names()) == [TOPIC]
        assert [each.stray for each in broker.directories.describe()] == [(str(tmp_path / "made-1"),)]
        assert "leftovers of a failed creation of topic made" in caplog.text
        await broker.topics.create("another")
        assert (tmp_path / CREATIONS_FILE).exists()
    async with running_broker(tmp_path) as broker:
        assert sorted(broker.topics.names()) == ["another", TOPIC]
        assert not (tmp_path / "made-1").exists()
        assert not (tmp_path / CREATIONS_FILE).exists()


async def test_internal_topics_stay(tmp_path: Path) -> None:
    name = "__transaction_state"
    async with running_broker(tmp_path) as broker:
        with pytest.raises(RequestError, match="the server's own"):
            await broker.topics.create("__share_group_state")
        await broker._manager.changes.create(name, 3, {"cleanup.policy": "compact"}, internal=True)
        for refused in (broker._manager.changes.delete(name), broker.topics.create_partitions(name, 5)):
            with pytest.raises(RequestError, match=r"^INVALID_TOPIC_EXCEPTION.*the server's own"):
                await refused
    async with running_broker(tmp_path) as broker:
        assert broker.topics.describe(name).config == {"cleanup.policy": "compact"}


async def test_a_topic_is_adopted_with_everything_kept_unless_someone_says_how_it_was_configured(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await broker._manager.changes.create("__consumer_offsets", 1, {}, internal=True)
        await broker.topics.create("said")
    (tmp_path / TOPICS_FILE).unlink()
    async with running_broker(tmp_path, adopted_topics={"said": {"segment.ms": "777"}}) as broker:
        assert broker.topics.describe(TOPIC).config == {"retention.ms": "-1", "retention.bytes": "-1"}
        assert broker.topics.describe("said").config == {"segment.ms": "777"}
        assert broker.topics.describe("__consumer_offsets").config["cleanup.policy"] == "compact"


def hosted(name: str, partitions: int = 1) -> HostedTopic:
    """A topic whose partitions are all offline."""
    found = HostedTopic(Topic(name=name, topic_id=random_uuid(), partitions=partitions), LogConfig(), [])
    for number in range(partitions):
        error = LogOfflineError(f"{name}-{number} is broken")
        found.partitions.append(OfflinePartition(TopicPartition(name, number), error, None))
    return found


def test_topics_come_in_the_order_of_their_names_and_each_change_has_a_version() -> None:
    topics = Topics()
    versions = {topics.version}
    for name in ("b", "c", "a", "a"):
        topics.add(hosted(name))
        versions.add(topics.version)
    assert [each.topic.name for each in topics] == ["a", "b", "c"]
    topics.remove("b")
    assert len({*versions, topics.version}) == 6
    assert ("a" in topics, "b" in topics, len(topics)) == (True, False, 2)


def test_a_partition_that_is_missing_or_offline_is_an_error_with_the_next_step() -> None:
    topics = Topics()
    topics.add(hosted("here", 2))
    with pytest.raises(UnknownTopicOrPartitionError, match="triolog topics create gone"):
        topics.actor(TopicPartition("gone", 0))
    for number in (-1, 2):
        with pytest.raises(UnknownTopicOrPartitionError, match=f"has partitions 0 to 1, not {number}"):
            topics.actor(TopicPartition("here", number))
    with pytest.raises(LogOfflineError, match="here-1 is broken"):
        topics.actor(TopicPartition("here", 1))
    assert [each.topic_partition.partition for each in topics.offline()] == [0, 1]
    assert topics.hosted() == []


def test_of_names_that_collide_one_is_told_as_long_as_there_is_one() -> None:
    topics = Topics()
    first, second = hosted("a.b"), hosted("a_b")
    for each in (first, first, second):  # adopted directories may collide
        topics.add(each)
    assert topics.colliding_with("a.b") == topics.colliding_with("a_b") == "a.b"
    assert topics.colliding_with("a-b") is None
    topics.remove("a.b")
    assert topics.colliding_with("a.b") == "a_b"
    topics.remove("a_b")
    assert topics.colliding_with("a.b") is None


async def test_clients_create_partitions_up_to_a_limit_of_all_topics(fast_path: Path) -> None:
    async with running_broker(fast_path, max_partitions=5) as broker:
        await broker.topics.create("a", 3)
        for refused in (lambda: broker.topics.create("b", 3), lambda: broker.topics.create_partitions("a", 6)):
            with pytest.raises(RequestError, match="would be 6 in all, above max_partitions=5") as caught:
                await refused()  # type: ignore[no-untyped-call]
            assert caught.value.code is ErrorCode.POLICY_VIOLATION
        await broker.topics.create_partitions("a", 4)
        await broker.topics.create("b", 1)
        await broker.offsets.commit("group", [])
        await broker.topics.delete("a")
        await broker.topics.create("c", 4)


async def test_partitions_that_exist_are_served_whatever_the_limit(fast_path: Path) -> None:
    async with running_broker(fast_path) as broker:
        await broker.topics.create("a", 3)
    async with running_broker(fast_path, max_partitions=1) as broker:
        assert broker.topics.partition_count("a") == 3
        with pytest.raises(RequestError, match="POLICY_VIOLATION"):
            await broker.topics.create("b", 1)


PLACE = TopicPartition(OFFSETS_TOPIC, 0)


def topic_of(broker: Broker, partitions: int = 1) -> InternalTopic:
    return InternalTopic(broker._manager, Clock(), OFFSETS_TOPIC, partitions)


def batch(value: bytes) -> bytes:
    return build_batch([(START_MS, b"key", value, ())])


def ignore(_: object) -> None:
    """Nothing is kept in memory."""


async def test_a_topic_that_many_need_at_once_is_made_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker, 3)
        assert topic.partitions == 3
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(topic.ensure)
        assert len(broker.topics.describe(OFFSETS_TOPIC).partitions) == 3
        assert topic_of(broker, 7).partitions == 3


async def test_answers_come_in_log_order_before_their_callers_go_on(tmp_path: Path) -> None:
    stored: list[int] = []

    async def append(topic: InternalTopic) -> None:
        offsets: list[int] = []

        def on_stored(result: AppendResult) -> None:
            offsets.append(result.base_offset)
            stored.append(result.base_offset)

        await topic.append(PLACE, batch(b"v"), on_stored)
        assert len(offsets) == 1

    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(append, topic)
    assert stored == list(range(30))


async def test_a_replay_sees_every_batch_of_every_segment_and_refuses_damage(tmp_path: Path) -> None:
    seen: list[int] = []

    def take(header: BatchHeader, _: Bytes) -> None:
        seen.append(header.base_offset)

    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        for number in range(5):
            await topic.append(PLACE, batch(b"%d" % number), ignore)
            await actor_of(broker, PLACE).perform(lambda log: log.roll())
        await topic.replay(PLACE, take)
        assert seen == list(range(5))
        with (tmp_path / f"{OFFSETS_TOPIC}-0" / f"{4:020d}.log").open("r+b") as log:
            log.seek(-2, 2)
            log.write(b"\xff")
        with pytest.raises(CorruptRecordError):
            await topic.replay(PLACE, take)


async def test_nobody_waits_for_an_actor_that_was_given_up(tmp_path: Path, fs: GateFileSystem) -> None:
    errors: list[RequestError] = []

    async def append(topic: InternalTopic) -> None:
        with trio.CancelScope(shield=True):
            try:
                await topic.append(PLACE, batch(b"v"), ignore)
            except RequestError as exc:
                errors.append(exc)

    async with running_broker(tmp_path, fs=fs) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        async with held(fs.hold("write", ".log"), append, topic) as nursery:
            nursery.start_soon(append, topic)
            await until(lambda: len(actor_of(broker, PLACE)._mailbox) == 1)
            actor_of(broker, PLACE).abandon()
    assert [error.code for error in errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "The outcome is unknown" in str(errors[0])


async def test_a_replay_short_of_the_high_watermark_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    async with running_broker(tmp_path) as broker:
        topic = topic_of(broker)
        await topic.ensure()
        await topic.append(PLACE, batch(b"whole"), ignore)
        three = build_batch([(START_MS, b"key", b"cut", ())] * 3)
        await topic.append(PLACE, three, ignore)
        await topic.replay(PLACE, lambda header, _: seen.append(header.base_offset))
        assert (seen, caplog.text) == ([0, 1], "")
        await actor_of(broker, PLACE).perform(lambda log: truncate_to(log, 3))
        await topic.replay(PLACE, lambda header, _: seen.append(header.base_offset))
    assert seen == [0, 1, 0]
    assert f"{PLACE} has no readable record from offset 1 up to its high watermark 3" in caplog.text


async def test_directories_of_deleted_topics_are_removed_once_by_two_calls_at_once(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        manager = broker._manager
        for number in range(3):
            await broker.topics.create(f"t{number}")
            await broker.topics.delete(f"t{number}")
        assert len(manager.changes.doomed) == 3
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(partial(manager.changes.delete_doomed, at_once=True))
        assert manager.changes.doomed == []
        assert list(tmp_path.glob("*-delete")) == []
        assert manager.disk.errors.counts == {}
