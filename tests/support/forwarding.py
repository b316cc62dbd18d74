"""A server and an upstream in this process, and links between them that run in threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import attrs
import triolog
from triolog.protocol.types import Record
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.forward.link import Claims, Link
from triolog.tools.forward.link_loop import LinkLoop
from triolog.tools.forward.memory import Wishes
from triolog.tools.forward.settings.forward_settings import read_link
from triolog.tools.forward.source.server import ServerSource

ANY_PORT: Final = Address(host="127.0.0.1", port=0)
FOR_EVER: Final = {"retention.ms": "-1"}
PATIENCE_S: Final = 60.0
POLL_S: Final = 0.005
NODE: Final = "node"
LINK: Final = "link"
GROUP: Final = f"triolog-forward.{NODE}.{LINK}"
TOPIC: Final = "readings"


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until it is so; for states of threads that nobody announces."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_s} s"
        time.sleep(POLL_S)


@attrs.frozen
class Forwarding:
    """The two, while they run."""

    source: BlockingBroker
    upstream: BlockingBroker
    claims: Claims = attrs.field(factory=Claims)

    def link(self, *, drain: bool = False, claims: Claims | None = None, **settings: Any) -> Link:
        """A link of one topic; `settings` are keys of a `[[forward]]` table."""
        to = settings.get("to") or self.upstream.bootstrap_servers
        table = {"name": LINK, "to": to, "topics": [TOPIC], "max_delay_ms": 20, **settings}
        address = self.source.native
        assert address is not None
        wishes = Wishes(drain_and_end=drain)
        return Link(read_link("the test", table), NODE, lambda: ServerSource(address), wishes, claims or Claims())

    def drain(self, **settings: Any) -> Link:
        """A link that has run until nothing was left."""
        link = self.link(drain=True, **settings)
        with Running(link) as running:
            running.wait()
        return link

    def append(self, values: Sequence[bytes], topic: str = TOPIC, partition: int = 0) -> None:
        self.source.append(topic, values, partition=partition)

    def values(self, topic: str = TOPIC, partition: int = 0) -> list[bytes | None]:
        """What a reader of committed records finds upstream."""
        return [record.value for record in self.records(topic, partition)]

    def records(self, topic: str = TOPIC, partition: int = 0) -> list[Record]:
        return self.upstream.log(topic).fetch(partition=partition)


class Running:
    """A link in its thread, for the time of the block; then it is stopped."""

    def __init__(self, link: LinkLoop) -> None:
        self.link = link
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"link {link.settings.name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.link.wishes.stop()
        self.wait()

    def wait(self) -> None:
        """Until it has ended by itself."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the link has not ended: {self.link.progress.snapshot()}"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.link.run()
        except BaseException as exc:
            self._error = exc


@contextlib.contextmanager
def forwarding(**upstream: Any) -> Iterator[Forwarding]:
    """A source and an upstream, both in memory; `upstream` are settings of its broker."""
    with (
        triolog.blocking.open(native=ANY_PORT, config=FOR_EVER) as source,
        triolog.blocking.open(kafka=ANY_PORT, config=FOR_EVER, **upstream) as there,
    ):
        yield Forwarding(source, there)
