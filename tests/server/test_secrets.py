"""No secret is anywhere but where it is kept: a server at DEBUG that is logged in to, refused, changed, configured wrongly and
asked about itself, and whatever it and its clients say of that. Secrets are looked for as they are, and in the forms that
protocols and files give them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from click.testing import CliRunner
from triolog.protocol.kafka.messages import security
from triolog.protocol.kafka.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism, ScramServer
from triolog.protocol.native.messages import AuthenticateRequest
from triolog.server.access.users import decode_users
from triolog.server.config.broker_config import BrokerConfig
from triolog.server.listeners.http.access import HttpAccess
from triolog.tools.cli.main import main
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.login import LoginConfig
from triolog.tools.client.tls import TlsConfig

from tests.support import descriptor_limits, kafka_login, kafka_wire, server_process
from tests.support.certificates import HOST, Certificates, make_certificates

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *DIGESTS)
SALT: Final = b"salt of robot, 20 by"
ITERATIONS: Final = 4096
REFUSED: Final = "no setting changed"


def derived(digest: str, password: bytes, salt: bytes, iterations: int) -> list[bytes]:
    """What logs in like the password: salted, the client's key, and what a server keeps (RFC 5802)."""
    salted = hashlib.pbkdf2_hmac(digest, password, salt, iterations)
    key, server = (hmac.new(salted, text, digest).digest() for text in (b"Client Key", b"Server Key"))
    return [salted, key, hashlib.new(digest, key).digest(), server]


@attrs.define(eq=False)
class Watch:
    """Secrets, and what was said where somebody may read it. Owner: the test."""

    found: dict[str, bytes] = attrs.field(factory=dict, repr=False)
    said: dict[str, bytes] = attrs.field(factory=dict, repr=False)

    def secret(self, name: str) -> str:
        """A new one."""
        text = f"{name.replace(' ', '-')}-{secrets.token_hex(8)}"
        self.found[name] = text.encode()
        return text

    def say(self, where: str, what: object) -> None:
        text = what if isinstance(what, bytes) else str(what).encode()
        self.said[where] = self.said.get(where, b"") + b"\n" + text

    @contextmanager
    def hears(self, where: str) -> Iterator[None]:
        """What goes wrong in the block is said, with its traceback."""
        try:
            yield
        except Exception as exc:
            self.say(where, "".join(traceback.format_exception(exc)) + repr(exc) + repr(getattr(exc, "__dict__", "")))

    def leaks(self) -> list[str]:
        """Where which secret is, in which form."""
        return [
            f"{name} as {form} in {where}"
            for where, text in self.said.items()
            for name, secret in self.found.items()
            for form, shown in forms(secret).items()
            if shown in text
        ]


def forms(secret: bytes) -> dict[str, bytes]:
    """A secret as something may show it. In base64 what stands before it matters: it is there at each of three places, without
    the characters that it shares with its neighbours."""
    encoded = {f"base64 at {before}": base64.b64encode(bytes(before) + secret)[-(-before * 4 // 3) : -4] for before in range(3)}
    return {
        "it is": secret,
        "hex": secret.hex().encode(),
        "HEX": secret.hex().upper().encode(),
        "repr": repr(secret)[2:-1].encode(),
        "utf-16": secret.decode("latin-1").encode("utf-16-le"),
        **encoded,
        **{f"url-safe {name}": text.replace(b"+", b"-").replace(b"/", b"_") for name, text in encoded.items()},
    }


@attrs.define(eq=False)
class Place:
    """A server with users on both doors, and what is in its files."""

    folder: server_process.ServerFolder
    certificates: Certificates
    watch: Watch
    passwords: dict[str, str]
    server: server_process.ServerProcess = attrs.field(init=False)

    @property
    def users(self) -> Path:
        return self.folder.path / "users.toml"

    @property
    def ready(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.server.ready_file.read_text())
        return found

    def configure(self) -> None:
        robot = ScramCredential.from_password(
            ScramMechanism.SCRAM_SHA_512, ITERATIONS, SALT, self.watch.secret("password of robot")
        )
        for number, key in enumerate(derived("sha512", self.watch.found["password of robot"], SALT, ITERATIONS)):
            self.watch.found[f"key {number} of robot"] = key
        text = "".join(f'[{user}]\npassword = "{password}"\n' for user, password in self.passwords.items())
        self.users.write_text(f'{text}[robot]\nscram-sha-512 = "{robot.as_text()}"\n')
        tokens = {name: self.folder.path / f"{name}.token" for name in ("metrics", "control")}
        for name, path in tokens.items():
            path.write_text(self.watch.secret(f"{name} token"))
        keys: dict[str, Any] = {
            "kafka": f"{HOST}:0",
            "kafka_security": "sasl_ssl",
            "native_security": "sasl_ssl",
            "ssl_certificate_file": self.certificates.server,
            "sasl_users_file": str(self.users),
            "acl_enable": True,
            "super_users": "User:root",
            "audit_file": str(self.folder.path / "audit.jsonl"),
            "metrics": f"{HOST}:0",
            "metrics_token_file": str(tokens["metrics"]),
            "log_level": "DEBUG",
            "connection_failed_authentication_delay_ms": 1,
        }
        key = Path(self.certificates.server).read_bytes().split(b"PRIVATE KEY-----")[1].replace(b"\n", b"")
        self.watch.found["private key"] = base64.b64decode(key.removesuffix(b"-----END EC ").removesuffix(b"-----END "))[8:40]
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())
        (self.folder.path / "server.toml").write_text(text)

    def start(self, *arguments: str) -> None:
        self.server = self.folder.start("--config", str(self.folder.path / "server.toml"), *arguments)

    @contextmanager
    def kafka(self) -> Iterator[kafka_wire.KafkaWire]:
        with (
            socket.create_connection(server_process.Address.parse(self.ready["kafka"])) as plain,
            self.certificates.client_context().wrap_socket(plain, server_hostname=HOST) as encrypted,
        ):
            yield kafka_wire.KafkaWire(encrypted)

    def native(self, user: str, password: str, mechanism: str | None = None) -> BlockingClient:
        login = LoginConfig(user=user, password=password, mechanism=mechanism)
        config = ClientConfig(tls=TlsConfig(ca_file=self.certificates.ca), login=login)
        self.watch.say("configuration of clients", config)
        return BlockingClient(self.server.address, config)

    def get(self, door: str, path: str, token: str) -> bytes:
        connection = HTTPConnection(*server_process.Address.parse(self.ready[door]), timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().read()
        finally:
            connection.close()


@pytest.fixture
def place(server_folder: server_process.ServerFolder, tmp_path_factory: pytest.TempPathFactory) -> Place:
    watch = Watch()
    passwords = {user: watch.secret(f"password of {user}") for user in ("root", "alice")}
    return Place(server_folder, make_certificates(tmp_path_factory.mktemp("certificates")), watch, passwords)


def authenticate(client: kafka_wire.KafkaWire, watch: Watch, mechanism: str, user: str, password: str) -> None:
    """A login by Kafka's protocol; answers, and what an exchange makes of the password, are noted."""
    watch.say("answers", client.call(security.SaslHandshakeRequest(mechanism=mechanism), 1))
    if mechanism == "PLAIN":
        watch.say("answers", client.call(security.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2))
        return
    exchange = kafka_login.ScramClient(DIGESTS[mechanism], user, password)
    first = client.call(security.SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
    last = client.call(security.SaslAuthenticateRequest(auth_bytes=exchange.final(first.auth_bytes)), 2)
    watch.say("answers", f"{first} {last}")
    fields = dict(part.split("=", 1) for part in first.auth_bytes.decode().split(","))
    keys = derived(DIGESTS[mechanism], password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    watch.found |= {f"key {number} of {user} by {mechanism}": key for number, key in enumerate(keys)}


def try_all_logins(place: Place) -> None:
    watch, wrong = place.watch, place.watch.secret("wrong password")
    for user, password in [*place.passwords.items(), ("alice", wrong), ("nobody", wrong)]:
        for mechanism in MECHANISMS:
            with watch.hears("errors of Kafka clients"), place.kafka() as client:
                authenticate(client, watch, mechanism, user, password)
            with watch.hears("errors of native clients"), place.native(user, password, mechanism) as native:
                watch.say("answers", BlockingAdmin(native).list_topics())
    garbage = watch.secret("password in a token that is none").encode()
    for mechanism in MECHANISMS:
        for token in (garbage, b"\0" + garbage, b"n,,n=alice,r=" + garbage + b",=", b"\0\0\0" + garbage + b"\xff"):
            with watch.hears("errors of Kafka clients"), place.kafka() as client:
                client.call(security.SaslHandshakeRequest(mechanism=mechanism), 1)
                watch.say("answers", client.call(security.SaslAuthenticateRequest(auth_bytes=token), 2))


def change_users(place: Place) -> None:
    watch, salted = place.watch, place.watch.secret("salted password of carol").encode()
    watch.found |= {
        f"key of carol, {text.decode()}": hmac.new(salted, text, "sha256").digest() for text in (b"Client Key", b"Server Key")
    }
    with place.kafka() as root:
        authenticate(root, watch, "PLAIN", "root", place.passwords["root"])
        for iterations, mechanism in ((ITERATIONS, 1), (1, 1), (ITERATIONS, 77)):
            user = security.AlterUserScramCredentialsScramCredentialUpsertion(
                name="carol", mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
            )
            request = security.AlterUserScramCredentialsRequest(deletions=[], upsertions=[user])
            watch.say("answers", f"{request} {root.call(request, 0)}")
        watch.say("answers", root.call(security.DescribeUserScramCredentialsRequest(users=None), 0))
        broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        described = root.call(DescribeConfigsRequest(resources=[broker], include_synonyms=True, include_documentation=True), 4)
        watch.say("describe", described)


def configure_wrongly(place: Place) -> None:
    """Files of users that make no sense, each with a password in it, which a SIGHUP has the server read."""
    good, wrong = place.users.read_text(), place.watch.secret("password in a file that makes no sense")
    for number, text in enumerate(
        (
            f'[alice\npassword = "{wrong}"',
            f'[alice]\npassword = "{wrong}"\n[alice]\npassword = "{wrong}"\n',
            f'alice = "{wrong}"\n',
            f'[alice]\npasword = "{wrong}"\n',
            f'[alice]\npassword = ["{wrong}"]\n',
            f'[alice]\n"scram-sha-256" = "{wrong}"\n',
            f'[alice]\n"scram-sha-256" = "salt={wrong},stored_key={wrong},server_key={wrong},iterations={wrong}"\n',
            f"[alice]\npassword = {wrong}\n",
        ),
        1,
    ):
        place.users.write_text(text)
        place.server.process.send_signal(signal.SIGHUP)
        place.server._wait_for(lambda number=number: place.server.stderr().count(REFUSED) >= number, REFUSED, 60)
    place.users.write_text(good)


def ask_about_it(place: Place) -> None:
    watch = place.watch
    with place.native("root", place.passwords["root"]) as client:
        watch.say("statistics", BlockingAdmin(client).statistics())
        watch.say("reprs of clients", f"{client!r} {client._shared!r}")
    ask(place, "metrics", "/metrics", "/readyz")
    assert b"triolog_security_events_total" in watch.said["metrics /metrics"]


def ask(place: Place, door: str, *paths: str) -> None:
    for path in paths:
        for token in (place.watch.found[f"{door} token"].decode(), "not-this-token-but-another"):
            place.watch.say(f"{door} {path}", place.get(door, path, token))


def test_secrets_are_nowhere_but_where_they_are_kept(place: Place) -> None:
    watch = place.watch
    place.configure()
    place.start()
    for use in (try_all_logins, change_users, configure_wrongly, ask_about_it):
        use(place)
    assert place.server.stop() == 0, place.server.stderr()
    log = place.server.stderr()
    place.start("--control", f"{HOST}:0", "--control-token-file", str(place.folder.path / "control.token"))
    try_all_logins(place)
    ask(place, "control", "/", "/requests")
    assert b"SaslAuthenticate" in watch.said["control /requests"]
    assert place.server.stop() == 0, place.server.stderr()
    for path in sorted(place.folder.path.rglob("*")):
        if path.is_file() and path.name not in ("users.toml", "security.json") and path.suffix != ".token":
            watch.say(f"the file {path.relative_to(place.folder.path)}", path.read_bytes())
    watch.say("the logs", place.folder.wrote())
    audit = watch.said["the file audit.jsonl"]
    assert all(f"logged in as alice by {mechanism}" in log for mechanism in MECHANISMS)
    assert log.count("as 'alice'") >= 2 * len(MECHANISMS)
    assert audit.count(b'"login failed"') > audit.count(b'"change"') > 0
    assert len(watch.found) > 20
    assert watch.leaks() == []


def test_a_secret_is_found_in_each_of_its_forms() -> None:
    """That the test above could fail."""
    secret = b"one secret of twenty"
    for shown in (
        secret,
        b"x" + base64.b64encode(b"\0a\0" + secret + b"!"),
        base64.b64encode(b"u" + secret),
        base64.urlsafe_b64encode(b"us" + secret),
        secret.hex().encode(),
    ):
        watch = Watch({"it": secret}, {"here": b"text " + shown + b" text"})
        assert watch.leaks(), shown


REPRS: Final[dict[str, Callable[[str], object]]] = {
    "settings": lambda secret: BrokerConfig(data_dirs=("d",), sasl_users={"alice": secret}),
    "users": lambda secret: decode_users("users.toml", f'[alice]\npassword = "{secret}"\n'.encode()),
    "a credential": lambda secret: ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096, b"s", secret.encode(), secret.encode()),
    "an exchange": lambda secret: exchange_of(secret),
    "a login by Kafka's protocol": lambda secret: security.SaslAuthenticateRequest(auth_bytes=secret.encode()),
    "a login by the native one": lambda secret: AuthenticateRequest("PLAIN", secret.encode()),
    "a client's login": lambda secret: ClientConfig(login=LoginConfig(user="alice", password=secret)),
    "access by HTTP": lambda secret: HttpAccess(token=secret),
    "a new user": lambda secret: security.AlterUserScramCredentialsScramCredentialUpsertion(
        name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=secret.encode()
    ),
}


def exchange_of(password: str) -> ScramServer:
    server = ScramServer(ScramMechanism.SCRAM_SHA_256, "nonce")
    server.receive_first(b"n,,n=alice,r=client")
    server.challenge(4096, b"salt")
    return server


@pytest.mark.parametrize("what", REPRS)
def test_no_secret_is_in_a_repr(what: str) -> None:
    secret = "a secret that is easily seen"
    watch = Watch({"it": secret.encode()}, {"repr": repr(REPRS[what](secret)).encode()})
    watch.found |= {f"key {number}": key for number, key in enumerate(derived("sha256", secret.encode(), b"salt", ITERATIONS))}
    assert watch.leaks() == []


WRONG_SETTINGS: Final = (
    'metrics_token = "SECRET"',
    'sasl_users = {alice = "SECRET"}',
    '[users]\nalice = "SECRET"',
    'sasl_users_file = {password = "SECRET"}',
    'sasl_users_file = "/nowhere/users.toml"\npassword = "SECRET"',
    'ssl_key_password = "SECRET"',
    'kafka_security = "sasl_ssl"\nsasl_users_file = "SECRET',
)


@pytest.mark.parametrize("text", WRONG_SETTINGS)
def test_settings_that_hold_a_secret_by_mistake_are_refused_without_it(tmp_path: Path, text: str) -> None:
    secret = "a-secret-that-is-easily-seen"
    config = tmp_path / "server.toml"
    config.write_text(text.replace("SECRET", secret))
    with descriptor_limits.process_as_it_was():
        result = CliRunner().invoke(main, ["serve", "--data-dir", str(tmp_path / "data"), "--config", str(config)])
    assert result.exit_code == 2, result.output
    assert Watch({"it": secret.encode()}, {"output": result.output.encode()}).leaks() == []
