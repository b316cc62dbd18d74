"""Every feature through every client; the table in docs/kafka-compatibility.md is what a whole run of this file has found.

`TRIOLOG_WRITE_TABLE=1` writes it. Otherwise a whole run is compared with it, and fails where the two differ. The commit tier
runs librdkafka's cells. The merge tier runs the other clients of Python, and builds the programs of Go, Node and Java. The long
tier adds Rust, whose program compiles librdkafka.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import SASL_MECHANISMS
from triolog.server.embedded import BlockingBroker

from tests.clients import external_programs
from tests.clients.clients import CLIENTS, Client, Running
from tests.clients.compatibility_table import BEGIN, END, PAGE, Cells, Outcome, Table, differences, documented, replaced
from tests.clients.conftest import CELL, Found
from tests.clients.driver import Access
from tests.clients.external_programs import ProgramUnavailableError
from tests.clients.scenarios import FEATURES, Broker, Cell, Feature
from tests.support.certificates import Certificates
from tests.support.counts import is_at_least
from tests.support.server_process import ServerFolder
from tests.support.tokens import unsecured

WRITE: Final = "TRIOLOG_WRITE_TABLE"

pytestmark = [
    pytest.mark.timeout(900),  # the first test of a program builds it
    # kafka-python does not close the socket of a connection that was refused. What we leave open shows as a descriptor.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Brokers]:
    with conformance_brokers(tmp_path_factory.mktemp("brokers"), certificates) as running:
        yield running


@attrs.define(eq=False)
class Started:
    """Clients that run, each from its first test to the end of the module: tests come in any order."""

    found: Found
    stack: ExitStack
    running: dict[str, Running] = attrs.field(factory=dict)
    absent: dict[str, str] = attrs.field(factory=dict)
    """Name -> why its program is not here."""

    def client(self, client: Client) -> Running:
        if client.name not in self.running.keys() | self.absent.keys():
            try:
                self.running[client.name] = self.stack.enter_context(client.running())
                self.found.versions[client.name] = self.running[client.name].version
            except ProgramUnavailableError as exc:
                self.absent[client.name] = str(exc)
                self.found.absent.add(client.name)
        if client.name in self.absent:
            external_programs.unavailable(self.absent[client.name])
        return self.running[client.name]


@pytest.fixture(scope="module")
def started(found: Found) -> Iterator[Started]:
    with ExitStack() as stack:
        yield Started(found, stack)


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Client:
    client: Client = request.param
    return client


@pytest.fixture(scope="module")
def running(client: Client, started: Started) -> Running:
    """As wide as the module, so that what is started is there before a test's leaks are counted."""
    return started.client(client)


@pytest.fixture(scope="module", autouse=True)
def whole_table(found: Found, request: pytest.FixtureRequest) -> Iterator[None]:
    """Behind the last cell: what a whole run has found is written, or compared."""
    yield
    cannot = {(client.name, name): why for client in CLIENTS.values() for name, why in client.cannot.items()}
    unasked = {(client.name, name) for client in CLIENTS.values() for name in FEATURES if _is_unasked(client)}
    cells_of = [(client, name) for client in CLIENTS if client not in found.absent for name in FEATURES]
    wanted = [cell for cell in cells_of if cell not in unasked]
    cells = {cell: Outcome.CANNOT if cell in cannot else found.cells.get(cell) for cell in wanted}
    whole = {cell: outcome for cell, outcome in cells.items() if outcome is not None}
    if not wanted or whole.keys() != cells.keys():
        return  # a part of the suite
    if os.environ.get(WRITE):
        assert not found.absent, f"not written: {', '.join(found.absent)} did not run"
        families = {client.name: client.family for client in CLIENTS.values()}
        table = Table(cells=whole, versions=found.versions, cannot=cannot, families=families)
        PAGE.write_text(replaced(PAGE.read_text(), table))
    elif said := differences(whole, PAGE.read_text(), unasked=unasked):
        pytest.fail("\n".join([f"the table is out of date; {WRITE}=1 writes it:", *said]), pytrace=False)


def _is_unasked(client: Client) -> bool:
    """Whether this run leaves the client to a later tier: the commit tier runs one client, and builds no programs."""
    return not is_at_least(client.tier) and not os.environ.get(WRITE)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[[], BlockingBroker]]:
    """Starts a broker that the scenario restarts; it goes on with the same data and port."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            triolog.blocking.open(tmp_path / "data", kafka=Address("127.0.0.1", 0), durability="os", for_tests=True)
        )


@pytest.fixture
def cell(
    feature: Feature, client: Client, running: Running, brokers: Brokers, own_broker: Callable[[], BlockingBroker]
) -> Iterator[Cell]:
    if feature.broker is Broker.OWN:
        own = own_broker()
        address, restart = own.bootstrap_servers, lambda: (own.crash(), own.restart())
    else:
        address, restart = brokers.addresses[feature.broker], lambda: pytest.fail("others use this broker")
    driver = running.driver(address, brokers.access(feature.broker, feature.mechanism))
    try:
        yield Cell(driver, f"{client.name}-{list(FEATURES).index(feature.name)}", restart, feature.assignor)
    finally:
        driver.close()


CELLS = [
    pytest.param(
        client,
        feature,
        id=f"{client.name}-{feature.slug}",
        marks=[
            getattr(pytest.mark, CELL)(client.name, feature.name),
            *([getattr(pytest.mark, client.tier)] if _is_unasked(client) else []),
            *([pytest.mark.skip(reason=client.cannot[feature.name])] if feature.name in client.cannot else []),
        ],
    )
    for client in CLIENTS.values()
    for feature in FEATURES.values()
]


@pytest.mark.parametrize(("client", "feature"), CELLS, indirect=["client"], scope="module")
def test_feature(cell: Cell, feature: Feature) -> None:
    feature.scenario(cell)


USER: Final = "alice"
PASSWORD: Final = "secret"
DAY_S: Final = 86_400
QUICK_GROUPS: Final = {
    "TRIOLOG_LENIENT": "true",
    "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "TRIOLOG_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "100",
    "TRIOLOG_GROUP_SHARE_HEARTBEAT_INTERVAL_MS": "100",
}
"""Waits of production that a test would sit out."""


@attrs.frozen
class Brokers:
    """Where they listen, and how a client gets in."""

    addresses: Mapping[Broker, str]
    certificates: Certificates

    def access(self, broker: Broker, mechanism: str | None) -> Access:
        tls = broker in (Broker.TLS, Broker.MUTUAL_TLS)
        return Access(
            ca=self.certificates.ca if tls else None,
            certificate=self.certificates.client if broker is Broker.MUTUAL_TLS else None,
            mechanism=mechanism,
            user=USER,
            password=PASSWORD,
            token=unsecured({"sub": USER, "iat": round(time.time()), "exp": round(time.time()) + DAY_S}),
        )


def _keys(folder: Path, certificates: Certificates) -> dict[Broker, dict[str, str]]:
    users = folder / "users.toml"
    users.write_text(f'[{USER}]\npassword = "{PASSWORD}"\n')
    tls = {"TRIOLOG_KAFKA_SECURITY": "ssl", "TRIOLOG_SSL_CERTIFICATE_FILE": certificates.server}
    return {
        Broker.PLAIN: {},
        Broker.TLS: tls,
        Broker.MUTUAL_TLS: {**tls, "TRIOLOG_SSL_CLIENT_CA_FILE": certificates.ca, "TRIOLOG_KAFKA_SSL_CLIENT_AUTH": "required"},
        Broker.SASL: {
            "TRIOLOG_KAFKA_SECURITY": "sasl_plaintext",
            "TRIOLOG_SASL_USERS_FILE": str(users),
            "TRIOLOG_SASL_ENABLED_MECHANISMS": ",".join(SASL_MECHANISMS),
            "TRIOLOG_SASL_OAUTHBEARER_UNSECURED_TOKENS": "true",
        },
    }


@contextmanager
def conformance_brokers(folder: Path, certificates: Certificates) -> Iterator[Brokers]:
    with ExitStack() as stack:
        servers = {}
        for broker, keys in _keys(folder, certificates).items():
            path = folder / broker
            path.mkdir()
            running = stack.enter_context(ServerFolder(path, ("--kafka", "127.0.0.1:0", "--durability", "os")))
            servers[broker] = running.spawn(extra_environment={**QUICK_GROUPS, **keys})
        addresses = {
            broker: json.loads(server.wait_ready().ready_file.read_text())["kafka"] for broker, server in servers.items()
        }
        yield Brokers(addresses, certificates)


EMPTY_PAGE = f"before\n{BEGIN}\n{END}\nbehind\n"
SAMPLE = {
    ("one", "read"): Outcome.PASSED,
    ("two", "read"): Outcome.FAILED,
    ("one", "groups: static"): Outcome.CANNOT,
    ("two", "groups: static"): Outcome.PASSED,
    ("three", "read"): Outcome.PASSED,
    ("three", "groups: static"): Outcome.CANNOT,
}
SAMPLE_TABLE = Table(
    cells=SAMPLE,
    versions={"one": "1.0, lib 2", "two": "3", "three": "0.1"},
    cannot={("one", "groups: static"): "no static members", ("three", "groups: static"): "no static members"},
    families={"one": "Python", "three": "Go", "two": "Python"},
)


def test_what_is_written_is_read_again() -> None:
    page = replaced(EMPTY_PAGE, SAMPLE_TABLE)
    assert documented(page) == SAMPLE
    assert replaced(page, SAMPLE_TABLE) == page
    assert page.splitlines() == [
        "before",
        BEGIN,
        "**Python**",
        "",
        "|  | one 1.0, lib 2 | two 3 |",
        "|---|---|---|",
        "| read | yes | fails |",
        "| groups: static | - (1) | yes |",
        "",
        "**Go**",
        "",
        "|  | three 0.1 |",
        "|---|---|",
        "| read | yes |",
        "| groups: static | - (1) |",
        "",
        "1. no static members",
        END,
        "behind",
    ]


MISSING = {cell: outcome for cell, outcome in SAMPLE.items() if cell != ("two", "groups: static")}


@pytest.mark.parametrize(
    ("ran", "unasked", "said"),
    [
        (SAMPLE, set(), []),
        ({**SAMPLE, ("one", "read"): Outcome.FAILED}, set(), ["read with one: the page says yes, the run says fails"]),
        ({**SAMPLE, ("two", "new"): Outcome.PASSED}, set(), ["new with two: the page says nothing, the run says yes"]),
        (MISSING, set(), ["groups: static with two: the page says yes, the run says nothing"]),
        (MISSING, {("two", "groups: static")}, []),
        ({("two", "read"): Outcome.FAILED, ("two", "groups: static"): Outcome.PASSED}, set(), []),  # `one` is not here
    ],
)
def test_a_run_that_found_something_else_is_told_where(ran: Cells, unasked: set[tuple[str, str]], said: list[str]) -> None:
    assert differences(ran, replaced(EMPTY_PAGE, SAMPLE_TABLE), unasked=unasked) == said


def test_the_page_has_every_client_and_what_is_declared_is_a_feature() -> None:
    assert documented(PAGE.read_text()).keys() == {(client, name) for client in CLIENTS for name in FEATURES}
    assert {name for client in CLIENTS.values() for name in client.cannot} <= FEATURES.keys()
