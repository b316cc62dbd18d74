"""A broker in the lifespan of a FastAPI application, driven by the framework's own client."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker

from tests.server.embedded.application import application
from tests.server.embedded.programs import is_clean


def test_an_application_appends_reads_and_copies_in_its_routes_and_tasks(tmp_path: Path) -> None:
    with TestClient(application(tmp_path)) as client:
        assert client.post("/readings/cellar?value=21.5").json() == {"offset": 0}
        assert client.post("/readings/cellar?value=35").json() == {"offset": 1}
        assert client.get("/readings").json() == ["21.5", "35"]
        assert client.get("/alarms/1").json() == ["35"]
        refused = client.get("/readings?topic=gone")
        assert (refused.status_code, "gone" in refused.json()["detail"]) == (404, True)
    assert is_clean(tmp_path)


def test_it_goes_on_where_it_was_when_it_is_started_again(tmp_path: Path) -> None:
    for value in (31, 32):
        with TestClient(application(tmp_path)) as client:
            client.post(f"/readings/cellar?value={value}")
            assert client.get(f"/alarms/{value - 30}").json() == ["31", "32"][: value - 30]
    with BlockingBroker(tmp_path, native=None) as broker:
        assert len(list(broker.follow("alarms", max_wait_s=0))) == 2
        assert set(broker.groups.committed("alarms")) == {TopicPartition("readings", each) for each in (0, 1)}
