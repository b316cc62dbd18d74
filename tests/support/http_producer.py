"""A client that appends over HTTP: http.client for whole requests, and a bare socket for those that break off."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

JSON_V2: Final = "application/vnd.kafka.json.v2+json"
BINARY_V2: Final = "application/vnd.kafka.binary.v2+json"
NDJSON: Final = "application/x-ndjson"
TIMEOUT_S: Final = 60.0


class Reply(NamedTuple):
    status: int
    body: dict[str, Any]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of each record of a v2 response."""
        return [(each["partition"], each["offset"]) for each in self.body["offsets"]]

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """Partition, first and last offset in the response to a stream."""
        return [(each["partition"], each["first_offset"], each["last_offset"]) for each in self.body["offsets"]]

    @property
    def error(self) -> tuple[int, int]:
        """Status and error code; the message is one line."""
        assert "\n" not in self.body["message"]
        return self.status, self.body["error_code"]


class HttpProducer:
    """One connection, which is opened again when the server has closed it."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
        if context is None:
            self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
        else:
            self._connection = http.client.HTTPSConnection(*address, timeout=TIMEOUT_S, context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: dict[str, str]) -> Reply:
        """Send any request. A body that is not bytes goes in chunks."""
        self._connection.request(method, path, body, headers, encode_chunked=body is not None and not isinstance(body, bytes))
        response = self._connection.getresponse()
        return Reply(response.status, json.loads(response.read()))

    def post(self, path: str, body: bytes, content_type: str = JSON_V2, **headers: str) -> Reply:
        """Append records. Underscores in names of headers are hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", path, body, {"content-type": content_type, **named})

    def values(self, path: str, *values: Any, **headers: str) -> Reply:
        return self.post(path, json.dumps({"records": [{"value": value} for value in values]}).encode(), **headers)

    def stream(self, path: str, pieces: Iterable[bytes], **headers: str) -> Reply:
        """Append lines, each piece as a chunk."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", path, pieces, {"content-type": NDJSON, "transfer-encoding": "chunked", **named})


class RawStream:
    """A stream of lines over a bare socket, as `curl -T -` sends it."""

    def __init__(self, address: tuple[str, int], path: str, **headers: str) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {NDJSON}", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._socket.close()

    def send(self, piece: bytes) -> None:
        self._socket.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))

    def break_off(self) -> Reply:
        """Send no more, in the middle of the body, and read the response."""
        self._socket.shutdown(socket.SHUT_WR)
        return self.reply()

    def reply(self) -> Reply:
        response = http.client.HTTPResponse(self._socket)
        response.begin()
        return Reply(response.status, json.loads(response.read()))
