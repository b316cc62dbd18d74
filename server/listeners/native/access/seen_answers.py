"""What is taken out of answers that the client may not see, by ACLs. Each function is given who asks and the answer's body,
which it changes; `guard` says for which call. Nothing of this is logged as a refusal: nobody has asked for what is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .....protocol.errors import AuthorizationError
from .....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from .....protocol.native import messages
from .....protocol.native.kinds import Body
from ...access.rights import Asker

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def _may_see(asker: Asker, kind: ResourceType, name: str) -> bool:
    return asker.authorize(AclOperation.DESCRIBE, kind, name, quietly=True)


def topics(asker: Asker, body: Body) -> None:
    """Of topics that may not be described, where all were asked for, and configurations that may not be."""
    body["topics"] = seen = [topic for topic in body["topics"] if _may_see(asker, TOPIC, topic["name"])]
    for topic in seen:
        if topic["config"] and not asker.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic["name"], quietly=True):
            topic["config"] = {}


def topics_with_gaps(asker: Asker, body: Body) -> None:
    """Topics that may not be described, where all were asked for."""
    body["topics"] = [topic for topic in body["topics"] if _may_see(asker, TOPIC, topic["name"])]


def offsets(asker: Asker, body: Body) -> None:
    """Offsets in topics that may not be described; where they are asked for by name the request was refused them."""
    body["partitions"] = [each for each in body["partitions"] if _may_see(asker, TOPIC, each["topic"])]


def listed_groups(asker: Asker, body: Body) -> None:
    if not _may_see(asker, CLUSTER, CLUSTER_NAME):
        body["groups"] = [group for group in body["groups"] if _may_see(asker, GROUP, group)]


def described_groups(asker: Asker, body: Body) -> None:
    """A group that reads a topic that the client may not describe is answered with an error and without details."""
    body["groups"] = [each if _may_see_topics(asker, each) else _hidden(each["group"]) for each in body["groups"]]


def _may_see_topics(asker: Asker, group: Body) -> bool:
    read = [each["topic"] for member in group["members"] for each in member["assignment"]]
    return all(_may_see(asker, TOPIC, topic) for topic in {*read, *(each["topic"] for each in group["shared"])})


def _hidden(group: str) -> Body:
    why = "The group has topics that the client is not authorized to describe."
    return messages.DescribedGroup(group, AuthorizationError(why, DENIED[TOPIC])).to_body()


def described_transactions(asker: Asker, body: Body) -> None:
    """Partitions of topics that the client may not describe."""
    for each in body["transactions"]:
        each["partitions"] = [place for place in each["partitions"] if _may_see(asker, TOPIC, place["topic"])]


def transaction(asker: Asker, name: str) -> bool:
    """Whether a transactional id is listed."""
    return _may_see(asker, TRANSACTION, name)


SAYS: Final[dict[Callable[..., object], str]] = {
    topics: "without DESCRIBE TOPIC topics, where all are asked for; without DESCRIBE_CONFIGS TOPIC their configuration",
    topics_with_gaps: "topics without DESCRIBE TOPIC, where all are asked for",
    offsets: "topics without DESCRIBE TOPIC, where all are asked for",
    listed_groups: "groups without DESCRIBE GROUP, unless the client has DESCRIBE CLUSTER",
    described_groups: "groups that read topics without DESCRIBE TOPIC, whose error says so",
    described_transactions: "topics without DESCRIBE TOPIC",
    transaction: "transactional ids without DESCRIBE TRANSACTIONAL_ID",
}
"""What is left out, in words."""
