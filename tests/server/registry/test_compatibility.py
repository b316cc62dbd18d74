"""Which earlier versions a schema is compared with, and how much of them."""

from __future__ import annotations

import pytest
from triolog.server.registry.compatibility import MAX_COMPARED_CHARS, Source, incompatibilities
from triolog.server.registry.formats.parsing import parse

MEGABYTE = 2**20 - 10


@pytest.mark.parametrize(("level", "is_compatible"), [("BACKWARD_TRANSITIVE", False), ("NONE", True)])
def test_earlier_versions_above_the_limit_count_as_incompatible(level: str, is_compatible: bool) -> None:
    olds = [Source("JSON", "true".ljust(MEGABYTE), (), version) for version in range(1, 10)]
    found = incompatibilities(level, "JSON", parse("JSON", "true", []), olds)
    assert (found == []) is is_compatible
    assert is_compatible or (str(MAX_COMPARED_CHARS) in found[0] and "oldSchemaVersion: 9" in found[1])
    assert incompatibilities(level, "JSON", parse("JSON", "true", []), olds[:8]) == []


def test_a_version_that_is_not_valid_any_more_and_one_of_another_type_count_as_incompatible() -> None:
    new = parse("JSON", "true", [])
    assert "cannot be compared" in incompatibilities("FULL", "JSON", new, [Source("JSON", "{", ())])[0]
    assert "of type JSON" in incompatibilities("FULL", "JSON", new, [Source("PROTOBUF", "", ())])[0]
