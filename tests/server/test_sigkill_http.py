"""SIGKILL in the middle of appends over HTTP. A client repeats what has no response, with the same key, to the next server; in
the end the log has every line of its stream once and in order, and every acknowledged record at its offset. `kill_runs` has the
runs."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.support import kill_runs
from tests.support.forked_servers import ServerForker
from tests.support.http_producer import HttpProducer, Reply
from tests.support.server_process import ServerFolder, ServerProcess
from tests.support.wire_client import WireClient

KILLS: Final = 3
ANY_PORT: Final = {"TRIOLOG_HTTP": "127.0.0.1:0"}
GONE: Final = (OSError, http.client.HTTPException)


@attrs.define(eq=False)
class Sender:
    """A client with a stream of lines and single records. It counts pieces, so that a kill comes after a number of them."""

    lines: list[bytes]
    piece_bytes: int
    kill_after: int
    kill: threading.Event = attrs.field(factory=threading.Event)
    sent: int = 0

    def pieces(self) -> Iterator[bytes]:
        """The whole stream. Signals once when the piece is reached after which the server is to die."""
        data = b"".join(line + b"\n" for line in self.lines)
        for number, start in enumerate(range(0, len(data), self.piece_bytes)):
            if number == self.kill_after:
                self.kill.set()
            yield data[start : start + self.piece_bytes]
        self.kill.set()


def _kill_when(told: threading.Event, server: ServerProcess) -> None:
    told.wait()
    server.kill()


def run_once(folder: ServerFolder, rng: random.Random) -> None:
    lines = [b'{"n": %d, "pad": "%b"}' % (number, b"x" * rng.randrange(300)) for number in range(rng.randrange(200, 4000))]
    single: dict[str, tuple[int, int]] = {}
    reply: Reply | None = None
    for attempt in range(KILLS + 1):
        server = folder.start("--durability", rng.choice(("fsync", "os")), extra_environment=ANY_PORT)
        if not attempt:
            with WireClient.connect(server.address) as client:
                client.create_topic("lines", 1, {"segment.bytes": str(rng.choice((20_000, 10_000_000)))})
                client.create_topic("single", 2)
        sender = Sender(lines, rng.randrange(200, 60_000), rng.randrange(30))
        killer = threading.Thread(target=_kill_when, args=(sender.kill, server))
        is_last = attempt == KILLS
        if not is_last:
            killer.start()
        with contextlib.suppress(*GONE), HttpProducer(server.address_of("http")) as producer:
            for key in [*single, f"key-{attempt}"]:
                answer = producer.values("/topics/single", key, Idempotency_Key=key)
                assert answer.status == 200
                (place,) = answer.offsets
                assert single.setdefault(key, place) == place, f"{key} has another offset after a kill"
            reply = producer.stream("/topics/lines", sender.pieces(), Idempotency_Key="stream")
            assert reply.status == 200
        sender.kill.set()
        if not is_last:
            killer.join()
    assert reply is not None
    assert reply.body["records"] + reply.body["already_appended"] == len(lines)
    with WireClient.connect(server.address) as client:
        records, _ = client.read_all("lines", 0)
        assert [record.value for record in records] == lines
        for key, (partition, offset) in single.items():
            found = {record.offset: record.value for record in client.read_all("single", partition)[0]}
            assert found[offset] == b'"%b"' % key.encode()
            assert list(found.values()).count(found[offset]) == 1
    assert server.stop() == 0


@pytest.mark.parametrize("run", kill_runs.runs(2))
def test_streams_and_keys_survive_kills(tmp_path: Path, server_forker: ServerForker, run: int) -> None:
    with kill_runs.choices(run) as rng, ServerFolder(tmp_path, command=server_forker) as folder:
        run_once(folder, rng)
