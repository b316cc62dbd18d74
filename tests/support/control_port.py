"""A server with a control port, as a test in another language sees it: HTTP of the standard library, a real client beside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any, Final

import attrs
from confluent_kafka import Producer

from tests.support.server_process import ServerFolder, ServerProcess

PATIENCE_S: Final = 30.0


@attrs.define
class Control:
    """A control port, as a test in another language sees it."""

    ready: dict[str, str]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        host, _, port = self.ready["control"].rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def do(self, method: str, path: str, body: Any = None) -> Any:
        status, told = self.ask(method, path, body)
        assert status == 200, (method, path, told)
        return told

    def producer(self, **config: Any) -> Producer:
        quick = {"linger.ms": 0, "retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10}
        return Producer({"bootstrap.servers": self.ready["kafka"], "log_level": 0, **quick, **config})

    def values(self, topic: str) -> list[Any]:
        return [record["value"] for record in self.do("GET", f"/topics/{topic}/records")]


def started(
    folder: ServerFolder, *arguments: str, extra_environment: Mapping[str, str] | None = None
) -> tuple[ServerProcess, Control]:
    server = folder.start("--kafka", "127.0.0.1:0", "--durability", "os", *arguments, extra_environment=extra_environment)
    return server, Control(json.loads(server.ready_file.read_text()))
