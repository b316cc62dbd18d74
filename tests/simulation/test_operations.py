"""Every call of both protocols and every command of an administrator has a step in the worlds, or a written reason."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.native.messages import REQUESTS
from triolog.tools.cli.main import ADMINISTRATION, FILES, SUBCOMMANDS

from .operations import COMMANDS, KAFKA, NATIVE, Entry
from .script import script_of
from .test_worlds import MERGE_SEEDS

ROOT: Final = Path(__file__).resolve().parents[2]
ENTRIES: Final[dict[str, Entry]] = {**{key.name: entry for key, entry in KAFKA.items()}, **NATIVE, **COMMANDS}


def test_every_api_of_kafka_has_a_step_or_a_reason() -> None:
    assert KAFKA.keys() == set(ApiKey)


def test_every_call_of_the_native_protocol_has_a_step_or_a_reason() -> None:
    assert NATIVE.keys() == REQUESTS.keys()


def test_every_command_for_files_and_administration_has_a_step_or_a_reason() -> None:
    assert COMMANDS.keys() == {name for name, each in SUBCOMMANDS.items() if each.section in (ADMINISTRATION, FILES)}


def test_a_reason_is_a_sentence_and_the_tests_that_it_names_exist() -> None:
    for name, entry in ENTRIES.items():
        if isinstance(entry, str):
            assert entry.endswith("."), name
            for path in entry.split("`")[1::2]:
                assert (ROOT / path).exists(), (name, path)


@pytest.mark.merge
def test_the_steps_occur_in_the_worlds_of_the_merge_tier() -> None:
    steps = {(step.who.split()[0], step.what) for seed in MERGE_SEEDS for step in script_of(str(seed)).steps}
    assert {entry for entry in ENTRIES.values() if not isinstance(entry, str)} - steps == set()
