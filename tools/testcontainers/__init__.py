"""The image of packaging/container as a container of testcontainers, for tests in Python.

    with TriologContainer() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The port that the system publishes is known only once the container runs, so `start` then sends Kafka clients to it through the
control port. Needs the package testcontainers, which no extra installs.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final, Self
from urllib.request import Request, urlopen

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

KAFKA: Final = 9092
NATIVE: Final = 9095
CONTROL: Final = 9096


class TriologContainer(DockerContainer):  # type: ignore[misc] # its types are not read: not everybody has installed it
    """A server for tests with the control calls of docs/testing-with-triolog.md."""

    def __init__(self, image: str = "triolog", **options: Any) -> None:
        super().__init__(image, **options)
        self.headers = {"Authorization": f"Bearer {secrets.token_hex()}", "Content-Type": "application/json"}
        self.with_envs(TRIOLOG_INSECURE="true", TRIOLOG_CONTROL_TOKEN=self.headers["Authorization"].split()[1])
        self.with_exposed_ports(KAFKA, NATIVE, CONTROL)
        runs = HttpWaitStrategy(CONTROL).with_header("Authorization", self.headers["Authorization"])
        self.waiting_for(runs.for_response_predicate(lambda body: json.loads(body)["is_running"]))

    def start(self) -> Self:
        super().start()
        self.control("POST", "/advertised", {"address": self.bootstrap_servers})
        return self

    def address(self, port: int) -> str:
        """Return HOST:PORT at which this machine reaches a port of the container."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(port)}"

    @property
    def bootstrap_servers(self) -> str:
        return self.address(KAFKA)

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Make a control call and return its response. Raises urllib.error.HTTPError if the server refuses it."""
        sent = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"http://{self.address(CONTROL)}{path}", sent, self.headers, method=method)) as response:
            return json.load(response)
