"""`security.json`: what is written comes back, what is damaged is refused, and nobody else reads it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.security.acls import Acl
from triolog.server.security.quota_entities import checked_entity
from triolog.server.storage.directory.security_file import (
    SECURITY_FILE,
    SecurityState,
    decode_security,
    encode_security,
    read_security,
    write_security,
)
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError

from tests.support.crash_fs import CrashFileSystem, PowerCut

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
credentials = st.builds(
    lambda mechanism, salt, keys: ScramCredential(
        mechanism, 4096, salt, keys[: mechanism.key_bytes], keys[-mechanism.key_bytes :]
    ),
    st.sampled_from(ScramMechanism),
    st.binary(min_size=1, max_size=20),
    st.binary(min_size=64, max_size=64),
)
acls = st.builds(
    Acl,
    st.sampled_from(ResourceType),
    names,
    st.sampled_from(PatternType),
    names,
    names,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
)
entities = st.one_of(
    st.dictionaries(st.sampled_from(["user", "client-id"]), st.none() | names, min_size=1),
    st.just({"ip": None}),
    st.ip_addresses().map(lambda address: {"ip": str(address)}),
).map(lambda parts: checked_entity(parts.items()))
quotas = st.dictionaries(
    entities, st.dictionaries(names, st.floats(min_value=0, exclude_min=True), min_size=1, max_size=3), max_size=4
)
states = st.builds(
    lambda generation, users, rules, quotas: SecurityState(
        generation, {(name, each.mechanism): each for name, each in users}, rules, quotas
    ),
    st.integers(0, 2**40),
    st.lists(st.tuples(names, credentials), max_size=4),
    st.frozensets(acls, max_size=4),
    quotas,
)
ONE = SecurityState(
    3,
    {("alice", ScramMechanism.SCRAM_SHA_256): ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096, b"s", b"k" * 32, b"v" * 32)},
    quotas={checked_entity([("user", "alice"), ("client-id", None)]): {"producer_byte_rate": 1024.0}},
)


@given(states)
def test_what_is_written_comes_back(state: SecurityState) -> None:
    assert decode_security("security.json", encode_security(state)) == state


def test_what_is_wrong_is_said_without_a_key() -> None:
    document = json.loads(encode_security(ONE))
    document["scram_credentials"][0]["credential"] = "salt=secret"
    with pytest.raises(CheckpointError) as caught:
        decode_security("security.json", json.dumps(document).encode())
    assert "secret" not in str(caught.value)


def test_nobody_but_its_owner_reads_it(tmp_path: Path) -> None:
    for durable in (True, False):
        write_security(OsFileSystem(), str(tmp_path), ONE, durable=durable)
        assert (tmp_path / SECURITY_FILE).stat().st_mode & 0o777 == 0o600
    assert read_security(OsFileSystem(), str(tmp_path)) == ONE


def test_a_power_cut_leaves_the_old_or_the_new() -> None:
    for changes in range(12):
        fs = CrashFileSystem()
        write_security(fs, "", SecurityState(1), durable=True)
        fs.cut_after(changes)
        try:
            write_security(fs, "", ONE, durable=True)
            is_written = True
        except PowerCut:
            is_written = False
        found = read_security(fs.crash(random.Random(changes)), "")
        assert found == ONE if is_written else found in (SecurityState(1), ONE)
    assert is_written
