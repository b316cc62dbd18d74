"""Every link's progress as metrics of Prometheus: in `/metrics` of a forwarding process, and of the server that has one as its
child. docs/forward.md says what each means.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ....server.settings.broker_config import Address
from ..errors import SettingsError
from ..progress import LinkProgress
from ..states import LinkState

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

GAUGES: Final = {
    "backlog_records": "Records that are not upstream.",
    "backlog_bytes": "Bytes of log that are not upstream, estimated from the size of the log.",
    "backlog_ms": "Age of the last record that is upstream while there are others behind it.",
    "records_per_second": "Rate over the last half minute.",
    "bytes_per_second": "Rate of keys, values and headers over the last half minute.",
}
COUNTERS: Final = {
    "records": "Records forwarded.",
    "bytes": "Bytes of their keys, values and headers.",
    "transactions": "Transactions committed upstream, or rounds of acknowledgements.",
    "failures": "How often the link has failed and tried again.",
    "lost_records": "Offsets that were gone before they could be forwarded.",
    "avoided_records": "Records that would have come twice upstream without transactions.",
    "dead_letter_records": "Records that went to the dead-letter topic.",
}
PREFIX: Final = "triolog_forward_"
NOT_RUNNING: Final = "not running"
"""Of a link that no process answers for."""


def families(told: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """What a scrape has. `told`: a snapshot of each link; of one that does not answer only its name."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    state = GaugeMetricFamily(f"{PREFIX}state", "1 for the state that a link is in.", labels=["link", "state"])
    for each in told:
        for known in (*(possible.value for possible in LinkState), NOT_RUNNING):
            state.add_metric([each["link"], known], float(each.get("state", NOT_RUNNING) == known))
    yield state
    answered = [each for each in told if "state" in each]
    troubles = GaugeMetricFamily(f"{PREFIX}stopped_topics", "Topics that cannot go on.", labels=["link"])
    for each in answered:
        troubles.add_metric([each["link"]], len(each["troubles"]))
    yield troubles
    kinds: list[tuple[dict[str, str], Any]] = [(GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)]
    for names, kind in kinds:
        for name, text in names.items():
            family = kind(PREFIX + name, text, labels=["link"])
            for each in answered:
                family.add_metric([each["link"]], each[name])
            yield family


@contextlib.contextmanager
def serve_metrics(address: Address, links: Callable[[], Sequence[LinkProgress]]) -> Iterator[int]:
    """Answer over HTTP for the time of the block, in a thread; gives the port. Raises SettingsError."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise SettingsError("metrics need prometheus_client: pip install 'triolog[metrics]'")
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
    from prometheus_client.registry import Collector

    class Links(Collector):
        def collect(self) -> Iterator[Metric]:
            return families([link.snapshot() for link in links()])

    registry = CollectorRegistry()
    registry.register(Links())
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as exc:
        raise SettingsError(f"metrics cannot be answered at {address}: {exc.strerror or exc}") from exc
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
