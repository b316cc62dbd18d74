"""Every right of every API over the wire: refused without it, where Kafka refuses it, and served with it.

`tests/data/kafka-4.3.1/rights.json` has what Apache Kafka answers; `tests/kafka/test_rights_answers.py` asks it again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.authorization import ResourceType
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.tools.cli.reference.config_table import NOTHING, kafka_table

from tests.support.kafka_rights.askers import CASES, LOGIN, Asker, askers
from tests.support.kafka_rights.case import THERE
from tests.support.kafka_rights.hidden import HIDDEN
from tests.support.kafka_rights.world import ADMIN, DEVIATIONS, Told, World, answered, comparable, question, recorded, users

KINDS: Final = "|".join(kind.name for kind in ResourceType if kind > ResourceType.ANY)
RIGHT: Final = re.compile(rf"([A-Z_]+) (?:on any )?((?:{KINDS})(?:(?:, | or )(?:{KINDS})\b)*)")
OF_GROUPS: Final = (ApiKey.OFFSET_DELETE, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS)
"""They tell who has the right on the group whether it is there."""
DENIED: Final = [asker for asker in askers() if asker.missing is not None]


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, Told]]:
    """Everything asked once. Nothing of what is there has changed when all that is refused was asked."""
    security = {"acl_enable": "true", "super_users": f"User:{ADMIN}"}
    with BlockingBroker(
        MEMORY, native=None, kafka=Address("127.0.0.1", 0), lenient=False, telemetry=True, users=users(), security=security
    ) as broker:
        world = World.made(broker.kafka)
        before = broker.describe_topic(THERE), set(broker.topics())
        refused = answered(world, DENIED)
        assert (broker.describe_topic(THERE), set(broker.topics())) == before
        yield refused | answered(world, (asker for asker in askers() if asker not in DENIED))


def test_who_has_all_rights_is_refused_nothing(answers: dict[str, Told]) -> None:
    for asker in askers():
        if asker.missing is None and not asker.hidden:
            assert not answers[question(asker, asker.own)].refusals, asker.label


def test_who_lacks_one_is_told_so_and_nothing_else(answers: dict[str, Told]) -> None:
    for asker in DENIED:
        check_denied(asker, *(answers[question(asker, asker.asks_about[number])] for number in (0, -1)))


def check_denied(asker: Asker, first: Told, last: Told) -> None:
    is_of_topic = asker.missing is not None and asker.missing[1] is ResourceType.TOPIC
    if is_of_topic and asker.case.key in OF_GROUPS:
        assert {*first.errors.values(), *last.errors.values()} <= {asker.refusal, "GROUP_ID_NOT_FOUND"}, asker.label
        return
    assert first.refusals == {asker.refusal}, asker.label
    if is_of_topic and asker.case.is_by_id:
        assert {*last.errors.values()} == {"UNKNOWN_TOPIC_ID"}, asker.label
    else:
        assert first.text == last.text, asker.label


def test_what_is_hidden_shows_by_its_right(answers: dict[str, Told]) -> None:
    for asker in askers():
        if asker.hidden is not None:
            is_shown = asker.hidden.shows in answers[question(asker, asker.own)].text
            assert is_shown is bool(asker.more), asker.label


def test_refusals_stand_where_they_stand_in_kafka(answers: dict[str, Told]) -> None:
    found, expected = comparable(answers), recorded()
    assert found.keys() == expected.keys()
    differing = {name: answer for name, answer in found.items() if answer != expected[name]}
    assert differing == {name: each.ours for name, each in DEVIATIONS.items()}


def test_every_row_of_the_table_has_its_cases() -> None:
    tested: dict[str, set[tuple[str, str]]] = defaultdict(set)
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for case in CASES:
        tested[APIS[case.key].name] |= {(operation.name, kind.name) for operation, kind in case.rights}
    for hidden in HIDDEN:
        seen[APIS[hidden.case.key].name].add((hidden.sees[0].name, hidden.sees[1].name))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in kafka_table().splitlines()[2:]]
    assert len(rows) == len(APIS)
    for name, needs, leaves_out in rows:
        rights = {(operation, kind) for operation, kinds in RIGHT.findall(needs) for kind in re.split(", | or ", kinds)}
        hides = {(operation, kind) for operation, kinds in RIGHT.findall(leaves_out) for kind in re.split(", | or ", kinds)}
        assert rights or needs == NOTHING, f"{name}: no right is read in {needs!r}"
        assert rights <= tested[name], f"{name}: no case for {rights - tested[name]}"
        assert hides <= tested[name] | seen[name], f"{name}: no case for {hides} that is hidden"
        is_asked = name in tested or name in {APIS[key].name for key in LOGIN}
        assert is_asked, f"{name}: no case"
