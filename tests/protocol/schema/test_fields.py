from __future__ import annotations

import pytest
from triolog.protocol.limits import INT16_MAX
from triolog.protocol.schema.fields import Versions, all_fields, fields_of

from tests.support.kafka_everything import Everything, Inner, Leaf


@pytest.mark.parametrize(
    ("text", "first", "last"), [("0+", 0, INT16_MAX), ("3+", 3, INT16_MAX), ("2-5", 2, 5), ("4", 4, 4), ("none", 0, -1)]
)
def test_versions_are_written_as_in_kafkas_schemas(text: str, first: int, last: int) -> None:
    assert Versions.parse(text) == (first, last)


@pytest.mark.parametrize("text", ["", "+", "a", "1-", "-1", "1-2+", "1+-2", "1,2"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Versions.parse(text)


def test_versions_contain_their_ends_and_nothing_else() -> None:
    assert [version for version in range(8) if version in Versions.parse("2-5")] == [2, 3, 4, 5]
    assert 0 not in Versions.parse("none")
    assert "2" not in Versions.parse("2-5")


def test_a_version_has_its_fields_in_the_order_of_the_declaration() -> None:
    assert [field.name for field in fields_of(Leaf, 2)] == ["number"]
    assert [field.name for field in fields_of(Leaf, 3)] == ["number", "late"]
    names = [field.name for field in all_fields(Everything)]
    assert [field.name for field in fields_of(Everything, 0)] == [name for name in names if name in _names(Everything, 0)]
    assert "early" in _names(Everything, 1)
    assert "early" not in _names(Everything, 2)


def _names(cls: type, version: int) -> set[str]:
    return {field.name for field in fields_of(cls, version)}


def test_a_field_that_is_not_said_otherwise_is_zero_empty_or_its_own_defaults() -> None:
    value = Everything()
    assert (value.flag, value.int64, value.float64, value.text, value.blob) == (False, 0, 0.0, "", b"")
    assert (value.uuid, value.records, value.numbers, value.early) == (bytes(16), None, [], 7)
    assert value.inner == Inner(name="", leaves=[], names=None, leaf=None, tagged_leaf=Leaf(number=-1, late=-1))


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Everything(), Everything()
    first.numbers.append(1)
    first.inner.leaves.append(Leaf())
    assert second == Everything()


def test_versions_in_both_ranges() -> None:
    assert Versions.parse("0-12").both(Versions.parse("8+")) == Versions(8, 12)
    assert not Versions.parse("0-7").both(Versions.parse("7")).are_none
    assert Versions.parse("0-7").both(Versions.parse("8+")).are_none
    assert Versions.parse("0+").both(Versions.parse("none")).are_none
