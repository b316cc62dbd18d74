"""A link from a real Mosquitto: both versions of MQTT, TLS, logins, sessions, retained messages."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
import trustme
from triolog.server.embedded import BlockingBroker
from triolog.tools.ingest.ingest import Ingest

from tests.support.forwarding import ANY_PORT, FOR_EVER, Running, until
from tests.support.mosquitto import PATH, Mosquitto, Publisher, mosquitto, needs_mosquitto
from tests.support.scripted_mqtt import link_from
from tests.tools.ingest.test_link import counts, headers, records, values

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")
pytestmark = [pytest.mark.merge, needs_mosquitto()]

DEVICE: Final = "sensors/7/temperature"
PROTOCOLS: Final = ("5", "3.1.1")


@contextlib.contextmanager
def both(folder: Path, more: str = "allow_anonymous true\n") -> Iterator[tuple[Mosquitto, BlockingBroker]]:
    """Mosquitto, and a server in this process."""
    with mosquitto(folder / "mosquitto", more) as broker, triolog.blocking.open(native=ANY_PORT, config=FOR_EVER) as server:
        yield broker, server


def running(link: Ingest) -> None:
    until(lambda: counts(link, "state") == ("running",), f"the session: {link.progress.snapshot()}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("qos", "delivery"), [(0, "at-most-once"), (1, "at-least-once"), (2, "exactly-once")])
def test_messages_of_each_qos_are_stored_as_reported(tmp_path: Path, protocol: str, qos: int, delivery: str) -> None:
    sent = [b"%d" % number for number in range(300)]
    with both(tmp_path) as (broker, server):
        link = link_from(str(broker.address), server, protocol=protocol, qos=qos)
        with Running(link):
            running(link)
            publisher = Publisher(broker, DEVICE, max(qos, 1))
            publisher.publish(sent)
            publisher.close()
            until(lambda: counts(link, "records") == (300,), "the records")
            assert values(server) == sent
            assert counts(link, "delivery", "duplicates", "failures") == (delivery, 0, 0)
            until(lambda: counts(link, "unreleased") == (0,), "the releases")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_wait_in_the_session_while_the_link_is_away(tmp_path: Path, protocol: str) -> None:
    with both(tmp_path) as (broker, server):
        publisher = Publisher(broker, DEVICE, 1)
        for number in (1, 3):
            link = link_from(str(broker.address), server, protocol=protocol)
            with Running(link):
                running(link)
                publisher.publish([b"%d" % number])
                until(lambda number=number: len(values(server)) == number, "the message")
            publisher.publish([b"%d" % (number + 1)])
        publisher.close()
        link = link_from(str(broker.address), server, protocol=protocol)
        with Running(link):
            until(lambda: len(values(server)) == 4, "all messages")
        assert values(server) == [b"1", b"2", b"3", b"4"]
        assert counts(link, "lost_sessions") == (0,)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_retained_messages_come_with_the_first_subscription(tmp_path: Path, protocol: str) -> None:
    with both(tmp_path) as (broker, server):
        publisher = Publisher(broker, DEVICE, 1)
        publisher.publish([b"kept"], retain=True)
        link = link_from(str(broker.address), server, protocol=protocol)
        with Running(link):
            until(lambda: counts(link, "retained") == (1,), "the message")
            [record] = records(server)
            assert headers(record)["mqtt.retain"] == b"true"
            broker.save()
            broker.kill()
            broker.start()
            publisher.close()
            publisher.publish([b"new"])
            until(lambda: b"new" in values(server), "the next message")
            assert values(server) == [b"kept", b"new"], "and no second time after a lost connection"
        publisher.close()


@pytest.mark.filterwarnings("ignore:.*ssl.SSLSocket")  # paho leaves one whose handshake failed to the garbage collector
def test_tls_and_a_login_are_used_and_a_refusal_is_said(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca, own, password = tmp_path / "ca.pem", tmp_path / "own.pem", tmp_path / "password"
    authority.cert_pem.write_to_path(str(ca))
    certificate.private_key_and_cert_chain_pem.write_to_path(str(own))
    program = shutil.which("mosquitto_passwd", path=PATH)
    assert program is not None
    subprocess.run([program, "-b", "-c", str(tmp_path / "users"), "plant", "secret"], check=True, capture_output=True)
    more = f"allow_anonymous false\npassword_file {tmp_path}/users\ncafile {ca}\ncertfile {own}\nkeyfile {own}\n"
    login: dict[str, Any] = {"user": "plant", "password": {"file": str(password)}, "tls": True}
    with both(tmp_path, more) as (broker, server):
        for changes, written, reason in (
            ({"ca_file": str(ca)}, "wrong", "refuses the connection: Not authorized"),
            ({}, "secret", "certificate"),
        ):
            password.write_text(written)
            link = link_from(str(broker.address), server, **{**login, **changes})
            with Running(link):
                until(lambda link=link: counts(link, "error")[0], "the refusal")
                assert reason in counts(link, "error")[0]
        password.write_text("secret\n")
        link = link_from(str(broker.address), server, **login, ca_file=str(ca))
        with Running(link):
            running(link)
