"""One vocabulary: what an embedded broker and a client both have has the same names, parameters and fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from triolog.protocol.native.messages import PartitionMetadata, TopicMetadata
from triolog.server.broker import PartitionDescription, TopicDescription
from triolog.server.embedded import EmbeddedBroker
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import Client
from triolog.tools.client.log_calls import LogCalls


def methods(cls: type) -> set[str]:
    return {name for name, each in vars(cls).items() if inspect.isfunction(each) and not name.startswith("_")}


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


SHARED = sorted(methods(LogCalls) & methods(EmbeddedBroker))


def test_the_calls_of_a_client_on_logs_are_those_of_a_broker() -> None:
    assert methods(LogCalls) - methods(EmbeddedBroker) == set()
    assert len(SHARED) > 9
    assert all(getattr(Client, name) is getattr(LogCalls, name) for name in SHARED)


@pytest.mark.parametrize("name", SHARED)
def test_a_call_has_the_same_parameters(name: str) -> None:
    assert parameters(getattr(LogCalls, name)) == parameters(getattr(EmbeddedBroker, name))


@pytest.mark.parametrize("name", ["alter_config", "create_partitions"])
def test_a_call_of_an_admin_has_the_same_parameters(name: str) -> None:
    assert parameters(getattr(Admin, name)) == parameters(getattr(EmbeddedBroker, name))


def fields(cls: Any) -> dict[str, str]:
    declared = {name: kind for base in reversed(cls.__mro__) for name, kind in inspect.get_annotations(base).items()}
    return {field.name: declared[field.name] for field in attrs.fields(cls)}


def test_a_topic_has_the_same_fields() -> None:
    """In the server's process its error is raised, and its end is known; its partitions are those of the process."""
    ours, theirs = fields(TopicDescription), fields(TopicMetadata)
    assert ours.keys() | {"error"} == theirs.keys()
    assert (ours["config"], ours["topic_id"]) == (theirs["config"], theirs["topic_id"].removesuffix(" | None"))
    partition = fields(PartitionDescription)
    assert partition.pop("log_end_offset") == "int"
    assert partition == fields(PartitionMetadata)
