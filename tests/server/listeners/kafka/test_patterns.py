"""Regular expressions of clients where RE2 is not installed: a process of its own cannot import it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from triolog.protocol.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[4]

WITHOUT_RE2 = """
import json, logging, sys
from pathlib import Path

sys.modules["re2"] = None

import attrs, trio
from tests.server.listeners.kafka.test_consumer_groups import BEAT, JOIN
from tests.support.kafka_server import TOPIC, kafka_server
from triolog.protocol.kafka.messages.transactions import ListTransactionsRequest

warnings = []

class Kept(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())

logging.getLogger().addHandler(Kept(logging.WARNING))

async def main(path):
    async with kafka_server(path) as server, server.connected() as client:
        await server.broker.topics.create(TOPIC, 3)
        by_pattern = attrs.evolve(JOIN, subscribed_topic_names=[], subscribed_topic_regex="to.*")
        joins = [await client.call(by_pattern, 1) for _ in range(2)]
        described = [each.group_id for each in server.broker.groups.listings()]
        by_name = await client.call(JOIN, 1)
        listed = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="m.*")
        found = {
            "joins": [(each.error_code, each.error_message, each.member_epoch) for each in joins],
            "groups": described,
            "by_name": [by_name.error_code, [each.partitions for each in by_name.assignment.topic_partitions]],
            "listed": (await client.call(listed, 2)).error_code,
            "warnings": warnings,
        }
        print(json.dumps(found))

trio.run(main, Path(sys.argv[1]))
"""


def test_without_re2_a_pattern_is_refused_at_once_with_the_remedy_and_one_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_RE2, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["groups"] == []
    for code, message, epoch in found["joins"]:
        assert (code, epoch) == (ErrorCode.UNSUPPORTED_VERSION, 0)
        assert "pip install 'triolog[regex]'" in message
        assert "The cluster does not support regular expressions resolution" in message  # the Java client looks for it
    assert found["by_name"] == [0, [[0, 1, 2]]]
    assert found["listed"] == ErrorCode.UNSUPPORTED_VERSION
    [warning] = found["warnings"]
    assert "pip install 'triolog[regex]'" in warning
