"""Hides what a client may not see in the answers to native calls, by ACLs.

`guard` says which function changes the answer to which call; the function gets the client and the answer's body. The table of
docs/reference/rights.md has the docstrings of these functions. Nothing of this is logged as a refusal.
"""

from __future__ import annotations

from .....protocol.errors import AuthorizationError
from .....protocol.kafka.authorization import DENIED, AclOperation
from .....protocol.native import messages
from .....protocol.native.kinds import Body
from ...access.rights import Asker
from ...access.rules import CLUSTER, GROUP, TOPIC, TRANSACTION


def topics(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC, where all are asked for, and configurations without DESCRIBE_CONFIGS TOPIC."""
    body["topics"] = seen = [topic for topic in body["topics"] if asker.may_see(TOPIC, topic["name"])]
    for topic in seen:
        if topic["config"] and not asker.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic["name"], quietly=True):
            topic["config"] = {}


def topics_with_gaps(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC, where all are asked for."""
    body["topics"] = [topic for topic in body["topics"] if asker.may_see(TOPIC, topic["name"])]


def offsets(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC, where all are asked for."""
    body["partitions"] = [each for each in body["partitions"] if asker.may_see(TOPIC, each["topic"])]


def listed_groups(asker: Asker, body: Body) -> None:
    """Hide groups without DESCRIBE GROUP, unless the client has DESCRIBE CLUSTER."""
    if not asker.may_see(CLUSTER):
        body["groups"] = [group for group in body["groups"] if asker.may_see(GROUP, group)]


def described_groups(asker: Asker, body: Body) -> None:
    """Hide groups that read topics without DESCRIBE TOPIC, whose error says so."""
    body["groups"] = [each if _may_see_topics(asker, each) else _hidden(each["group"]) for each in body["groups"]]


def _may_see_topics(asker: Asker, group: Body) -> bool:
    read = [each["topic"] for member in group["members"] for each in member["assignment"]]
    return all(asker.may_see(TOPIC, topic) for topic in {*read, *(each["topic"] for each in group["shared"])})


def _hidden(group: str) -> Body:
    why = "The group has topics that the client is not authorized to describe."
    return messages.DescribedGroup(group, AuthorizationError(why, DENIED[TOPIC])).to_body()


def described_transactions(asker: Asker, body: Body) -> None:
    """Hide topics without DESCRIBE TOPIC."""
    for each in body["transactions"]:
        each["partitions"] = [place for place in each["partitions"] if asker.may_see(TOPIC, place["topic"])]


def transaction(asker: Asker, name: str) -> bool:
    """Hide transactional ids without DESCRIBE TRANSACTIONAL_ID."""
    return asker.may_see(TRANSACTION, name)
