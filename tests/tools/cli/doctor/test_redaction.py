"""No secret and no content of a record is in a report, wherever it was configured, logged or damaged."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import triolog
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, encode_topics
from triolog.tools.cli.doctor.log_lines import read_log
from triolog.tools.cli.doctor.redaction import REDACTED, Redaction

from tests.server.test_secrets import forms
from tests.support.damaged_batches import flip
from tests.support.stopped_logs import TOPIC, TOPIC_ID, StoppedLogs

from .conftest import Doctor

LINE: Final = "time=2026-01-01T00:00:00.000Z level=warning logger=triolog.server.x message={}\n"
SECRETS: Final = st.text("abcdefXYZ0189+/=_-.~!%@:?#$", min_size=8, max_size=40).filter(
    lambda text: text[0].isalnum() and text[-1].isalnum()
)


def in_message(text: str) -> str:
    return LINE.format(json.dumps(text))


LOGGED: Final[dict[str, Callable[[str], str]]] = {
    "a line of another program": lambda secret: f"proxy: forwarded with key {secret}\n",
    "a line of another logger": lambda secret: LINE.format(secret).replace("triolog.server", "aiohttp"),
    "userinfo of a URL": lambda secret: in_message(f"cannot reach https://user:{secret}@registry:8081/subjects"),
    "query of a URL": lambda secret: in_message(f"cannot reach https://host/path?sig={secret}"),
    "a header": lambda secret: in_message(f"request with Authorization: Bearer {secret}"),
    "basic credentials": lambda secret: in_message(f"headers: {{'authorization': 'Basic {secret}'}}"),
    "a setting of librdkafka": lambda secret: in_message(f"sasl.password={secret} refused"),
    "a login at a schema registry": lambda secret: in_message(f"basic.auth.user.info=user:{secret} refused"),
    "a short name": lambda secret: in_message(f"db_pass={secret} pwd={secret}"),
    "cookies": lambda secret: in_message(f"headers: {{'Cookie': 'a=1; session={secret}'}}"),
    "a client secret": lambda secret: in_message(f'sasl.oauthbearer.client.secret = "{secret}"'),
    "JSON": lambda secret: in_message(json.dumps({"ssl.key.password": secret, "a": 1})),
    "JAAS": lambda secret: in_message(f"sasl.jaas.config='PlainLoginModule required password=\"{secret}\";'"),
    "a record": lambda secret: in_message(f"cannot decode {secret.encode()!r}"),
    "a token": lambda secret: in_message(f"eyJ{secret}.{secret}.{secret}"),
    "a key": lambda secret: in_message(f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----"),
    "a traceback": lambda secret: LINE.format("failed").rstrip() + f" exception={json.dumps(_traceback(secret))}\n",
}


def _traceback(secret: str) -> str:
    try:
        raise KeyError(secret)
    except KeyError as exc:
        return "".join(traceback.format_exception(exc))


@pytest.mark.parametrize("place", LOGGED)
@given(secret=SECRETS)
@example(secret="hunter22")
@example(secret="p@ss:w/rd?1")
def test_a_secret_in_a_log_is_left_out(tmp_path_factory: pytest.TempPathFactory, place: str, secret: str) -> None:
    path = tmp_path_factory.getbasetemp() / "server.log"
    path.write_text(LOGGED[place](secret) + LINE.format("started"))
    lines, _ = read_log(str(path), Redaction())
    assert "started" in lines[-1]
    assert secret not in "\n".join(lines)


@given(secret=SECRETS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_secret_of_a_variable_is_left_out_wherever_it_is(secret: str, before: str, after: str) -> None:
    clean = Redaction.of({"SOME_API_TOKEN": secret}, None).clean({before + secret: [after, {"x": secret + after}]})
    assert secret not in json.dumps(clean, ensure_ascii=False)
    assert REDACTED in json.dumps(clean)


def test_texts_without_secrets_stay() -> None:
    for text in (
        "orders-0: offsets 5 to 7 are lost, their bytes are in 00000000000000000000.log.corrupt-0",
        "log directory /var/lib/triolog is out of service: [Errno 5] Input/output error",
        "kafka listens on https://host:9092/path without a login",
        "segment rolled: topic=orders partition=0 base_offset=4711 reason=size",
    ):
        assert Redaction().text(text) == text
    assert Redaction().clean({"security": {"failed_logins": 2}}) == {"security": {"failed_logins": 2}}


def test_no_secret_of_a_configured_server_is_in_the_report(
    here: Path, logs: StoppedLogs, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets in each place where a server, its links or its clients have one; the report says everything else."""
    places = (
        *("users", "scram", "metrics", "key", "link file", "link variable", "url", "environment", "password", "typed", "topic"),
        *("header", "security", "proxy", "token file", "inline"),
    )
    secrets = {name: f"{name.replace(' ', '-')}-8Jq2x7ZpW" for name in places}
    Path("users.toml").write_text(
        f'[alice]\npassword = "{secrets["users"]}"\n'
        f'[bob]\n"scram-sha-256" = "salt=c2FsdHk,stored_key={secrets["scram"]},server_key=abc,iterations=8192"\n'
    )
    Path("metrics.token").write_text(secrets["metrics"] + "\n")
    Path("key.pem").write_text(f"-----BEGIN PRIVATE KEY-----\n{secrets['key']}\n-----END PRIVATE KEY-----\n")
    Path("link.secret").write_text(secrets["link file"])
    Path("client.token").write_text(secrets["token file"])
    Path("server.toml").write_text(
        'sasl_users_file = "users.toml"\nmetrics_token_file = "metrics.token"\nssl_key_file = "key.pem"\n'
        'sasl_enabled_mechanisms = "PLAIN,OAUTHBEARER"\n'
        f'sasl_oauthbearer_jwks_endpoint_url = "https://user:{secrets["url"]}@issuer/keys"\n'
        f'audit_file = "/var/log/audit?password={secrets["inline"]}"\n'
        '[[forward]]\nname = "up"\nto = "kafka:9092"\n'
        '[forward.kafka]\n"sasl.password" = { file = "link.secret" }\n"sasl.oauthbearer.client.secret" = { variable = "ODD" }\n'
    )
    variables = {
        "ODD": secrets["link variable"],
        "MY_SECRET": secrets["environment"],
        "TRIOLOG_PASSWORD": secrets["password"],
        "TRIOLOG_LOG_LEVEL": "debug",
        "HTTPS_PROXY": f"http://user:{secrets['proxy']}@proxy:3128",
        "TRIOLOG_PASSWORD_FILE": "",
        "API_TOKEN_FILE": "client.token",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    configs = {"retention.ms": "-1", "sasl.jaas.config": f"password={secrets['topic']}"}
    topic = Topic(name=TOPIC, topic_id=TOPIC_ID, partitions=2, configs=configs)
    (logs.path / TOPICS_FILE).write_bytes(encode_topics(2, [topic]))
    (logs.path / "security.json").write_text(json.dumps({"format_version": 1, "salt_secret": secrets["security"]})[:-3])
    log = in_message(f"request refused: header x-api-key: {secrets['header']}") + in_message(f"user typed {secrets['typed']}")
    log += "".join(
        in_message(f"unexpected text {secret}") for name, secret in secrets.items() if name not in {"typed", "header"}
    )
    monkeypatch.setenv("TYPED_PASSWORD", secrets["typed"])

    report = doctor(logs.path, "--config", "server.toml", log=log)

    assert report.symptoms == {"unknown-key", "damaged"}, report.document["findings"]
    assert "sasl.jaas.config" in report.evidence("unknown-key")
    assert report.part("configuration.json")["sasl_users_file"]["value"] == "users.toml"
    assert report.part("configuration.json")["log_level"]["value"] == "debug"
    written = {**report.texts, "printed": json.dumps(report.document)}
    known = {"url", "inline", "security", "topic"}  # by their form or their place, and by no name
    shown = [
        (name, where, form)
        for name, secret in secrets.items()
        for where, text in written.items()
        for form, data in forms(secret.encode()).items()
        if data.decode("latin-1") in text and not (where == "log.txt" and name in known)
    ]
    assert shown == []


def test_no_content_of_a_record_is_in_the_report_of_a_damaged_directory(tmp_path: Path, doctor: Doctor) -> None:
    value = b"card 4111-1111-1111-1111 of somebody"
    with triolog.blocking.open(tmp_path / "data", topics=["t"], native="127.0.0.1:0") as broker:
        for _ in range(20):
            broker.append("t", [(None, b"key of a person", value, ())])
    log = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    flip(log, 30)
    flip(log, -5)
    report = doctor(tmp_path / "data")
    assert "damaged" in report.symptoms
    everything = "".join(report.texts.values())
    assert not any(text in everything for text in ("4111-1111", "key of a person"))
