"""Outages between a real Mosquitto and ingest, a day of them in the long tier: no acknowledged message is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import triolog

from tests.support.counts import counts as by_tier
from tests.support.flapping_link import FlappingLink
from tests.support.forwarding import ANY_PORT, FOR_EVER, Running, until
from tests.support.mosquitto import Publisher, mosquitto, needs_mosquitto
from tests.support.scripted_mqtt import MQTT_TOPIC, link_from
from tests.tools.ingest.test_link import counts, values

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")
pytestmark = [pytest.mark.merge, needs_mosquitto()]

HOURS: Final = by_tier(24, merge=1)
MESSAGES: Final = 20
PATIENCE_S: Final = 120.0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("qos", [1, 2])
def test_outages_lose_no_message_and_with_qos_2_double_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    for name in ("FIRST_PAUSE_MS", "LONGEST_PAUSE_MS", "LONGEST_REFUSED_MS"):
        monkeypatch.setattr(f"triolog.tools.forward.pacing.{name}", 20)
    with (
        mosquitto(tmp_path / "mosquitto") as broker,
        FlappingLink(HOURS, seed=qos) as uplink,
        triolog.blocking.open(native=ANY_PORT, config=FOR_EVER) as server,
    ):
        uplink.target = lambda: (broker.address.host, broker.address.port)
        link = link_from(uplink.address, server, qos=qos)
        publisher = Publisher(broker, MQTT_TOPIC, qos)
        published = 0
        with Running(link):
            until(lambda: counts(link, "state") == ("running",), "the session", PATIENCE_S)
            while left := uplink.outages_left:
                publisher.publish([b"%d" % number for number in range(published, published + MESSAGES)])
                published += MESSAGES
                until(
                    lambda left=left, goal=published: uplink.outages_left < left or counts(link, "records")[0] >= goal,
                    "an outage, or the records",
                    PATIENCE_S,
                )
            publisher.close()
            until(lambda: len(set(values(server))) >= published, "the last message", PATIENCE_S)
        found = Counter(values(server))
        assert found.keys() == set(publisher.acknowledged) == {b"%d" % number for number in range(published)}
        assert found.total() - len(found) <= counts(link, "duplicates")[0], "a message that is stored again is reported"
        if qos == 2:
            assert set(found.values()) == {1}
            assert counts(link, "delivery") == ("exactly-once",)
        assert counts(link, "lost_sessions", "dead_letter_records") == (0, 0)
        assert uplink.refused
