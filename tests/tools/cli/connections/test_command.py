from __future__ import annotations

from triolog.server.embedded import BlockingBroker

from tests.support.wire_client import WireClient

from ..conftest import Cli


def test_every_connection_is_a_row_and_the_commands_own_is_one(cli: Cli, broker: BlockingBroker) -> None:
    with WireClient.connect(broker.native):
        told = cli.json("connections")
        assert told["connections"][0]["client_id"] == "wire-client"
        first = told["connections"][0]
        assert (first["protocol"], first["software_name"], first["requests"]) == ("native", None, 1)
        assert first["received_bytes"] > 0
        rows = [line.split() for line in cli.ok("connections").splitlines()]
        [row] = [row for row in rows if "wire-client" in row]
        assert row[1:5] == ["native", "wire-client", "-", "User:ANONYMOUS"]
        assert any("triolog-python" in row for row in rows)
        assert "more connection" in cli.ok("connections", "--limit", "0")
        cli.refused("connections", "--limit", "10001", code=2)
