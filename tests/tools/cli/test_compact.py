from __future__ import annotations

import json

from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, decode_topics, encode_topics
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE

from tests.support.stopped_logs import CONFIGS, TOPIC, TOPIC_ID, StoppedLogs

from .conftest import call


def compacted_policy(logs: StoppedLogs) -> None:
    path = logs.path / TOPICS_FILE
    assert decode_topics("", path.read_bytes())[0] == 1
    configs = {**CONFIGS, "cleanup.policy": "compact"}
    path.write_bytes(encode_topics(2, [Topic(name=TOPIC, topic_id=TOPIC_ID, partitions=2, configs=configs)]))


def offsets(logs: StoppedLogs, number: int, *, isolation: str = "read_committed") -> list[tuple[int, str | None]]:
    result = call("export", logs.partition(number), "--isolation", isolation)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["offset"], row["key"]) for row in rows]


def test_the_newest_record_of_each_key_stays(logs: StoppedLogs) -> None:
    compacted_policy(logs)
    before = [offsets(logs, number) for number in range(2)]
    result = call("compact", logs.path, "--topic", TOPIC, "--include-active")
    assert result.exit_code == 0, result.output
    assert "flights-0: " in result.stdout
    assert "records without a key dropped" in result.stdout
    for number in range(2):
        after = offsets(logs, number)
        assert set(after) <= set(before[number])
        assert len(after) < len(before[number])
        assert max(offset for offset, key in before[number] if key == "key") in {offset for offset, _ in after}
    assert call("verify", logs.path).exit_code == 0
    assert (logs.path / CLEAN_SHUTDOWN_FILE).exists()
    assert not list(logs.path.rglob("*.deleted"))
    again = json.loads(call("compact", logs.path, "--topic", TOPIC, "--include-active", "--json").stdout)
    assert [part["rounds"] for part in again["partitions"]] == [0, 0]
    assert all(part["bytes_before"] == part["bytes_after"] for part in again["partitions"])
    assert call("compact", logs.path, "--topic", "trains").exit_code == 3


def test_a_topic_that_is_not_compacted_is_refused_unless_forced(logs: StoppedLogs) -> None:
    before = offsets(logs, 0)
    result = call("compact", logs.path, "--topic", TOPIC)
    assert result.exit_code == 1
    assert "all records without a key would be lost" in result.stderr
    assert offsets(logs, 0) == before
    assert call("compact", logs.path, "--topic", TOPIC, "--force").exit_code == 0
    assert len(offsets(logs, 0)) < len(before)
