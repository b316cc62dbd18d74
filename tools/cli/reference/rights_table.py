"""The tables of rights in docs/reference/rights.md, made from what both protocols ask before they serve a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....protocol.kafka.apis import APIS
from ....protocol.native import messages
from ....server.listeners.kafka.access import guard as kafka_guard
from ....server.listeners.native.access import guard as native_guard

HEAD = ("| call | needs | leaves out |", "|---|---|---|")
NOTHING = "nothing"


def native_table() -> str:
    """Calls of the native protocol, as a Markdown table. KeyError when one has no rules."""
    rows = []
    for api, request in messages.REQUESTS.items():
        rules = native_guard.RULES[request]
        each = [] if rules.each is None else [f"each: {rules.each.says}"]
        rows.append(_row(f"`{api}`", [*(rule.says for rule in rules.whole), *each], _hidden(rules.hide or rules.sees)))
    return "\n".join((*HEAD, *rows))


def kafka_table() -> str:
    """APIs of Kafka's protocol, as a Markdown table. KeyError when one has no rules."""
    rows = []
    for api in sorted(APIS.values(), key=lambda api: api.name):
        if api.key in kafka_guard.FREE:
            rows.append(_row(api.name, [], ""))
            continue
        itself = kafka_guard.BY_THEMSELVES.get(api.key)
        rules = kafka_guard.Rules() if itself and api.key not in kafka_guard.RULES else kafka_guard.RULES[api.key]
        each = [] if rules.each is None else [f"each: {rules.each.says}"]
        needs = [*(rule.says for rule in rules.whole), *([itself] if itself else []), *each]
        rows.append(_row(api.name, needs, _hidden(rules.hide)))
    return "\n".join((*HEAD, *rows))


def _hidden(function: Callable[..., object] | None) -> str:
    return "" if function is None else (function.__doc__ or "").removeprefix("Hide ").removesuffix(".")


def _row(name: str, needs: Iterable[str], hidden: str) -> str:
    return f"| {name} | {'; '.join(needs) or NOTHING} | {hidden} |"
