"""A storm of connections, each reset at once, costs others nothing but time; `connect_storm` beside this measures it."""

from __future__ import annotations

from triolog.protocol.limits import MIB

from tests.server.connect_storm import LEAST_ANSWERS, LEAST_MADE, kafka_address, storm
from tests.support.counts import counts
from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_server import TOPIC
from tests.support.kafka_wire import KafkaWire
from tests.support.server_process import ServerFolder


def test_a_client_is_served_through_a_storm_that_leaves_nothing_behind(server_folder: ServerFolder) -> None:
    seconds = counts(100, quick=3) / 10
    server = server_folder.start("--kafka", "127.0.0.1:0", "--durability", "os")
    with KafkaWire.connect(kafka_address(server)) as client:
        client.call(create_topics(new_topic(TOPIC)), 7)
        storm(server, client, min(1, seconds))  # what the first storm takes is kept for the next one
        seen = storm(server, client, seconds)
    assert seen.made >= LEAST_MADE
    assert len(seen.beside_ms) >= LEAST_ANSWERS
    assert seen.left_sockets <= 0
    assert seen.left_bytes < 8 * MIB
    assert server.stop() == 0
    assert "Traceback" not in server.stderr()
