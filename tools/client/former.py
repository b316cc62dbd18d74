"""Calls of clients under the names of earlier releases, for the clients of all faces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ...protocol.former import warn_former
from ...protocol.native.messages import CreateTopicsRequest, DeleteTopicsRequest, ExplainRequest, RequestMessage
from .procedures.topics import answer_to

F = TypeVar("F", bound=Callable[..., Any])


class Caller(Protocol):
    """A client of any face."""

    def call(self, request: RequestMessage) -> Any: ...


class FormerRequests:
    """Requests that were methods. They return what `call` of the face returns."""

    def create_topics(self: Caller, request: CreateTopicsRequest) -> Any:
        """Use `call`, or `create_topics` of an admin."""
        warn_former("create_topics(request)", "call(request)")
        return self.call(request)

    def delete_topics(self: Caller, request: DeleteTopicsRequest) -> Any:
        """Use `call`, or `delete_topics` of an admin."""
        warn_former("delete_topics(request)", "call(request)")
        return self.call(request)

    def explain(self: Caller, request: ExplainRequest) -> Any:
        """Use `call`, or `explain` of an admin."""
        warn_former("explain(request)", "call(request)")
        return self.call(request)


def or_request(new: str) -> Callable[[F], F]:
    """Let a call still accept a request in place of its arguments; `new` is the call that accepts requests."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            request = arguments[0] if arguments else options.get("request")
            if not isinstance(request, RequestMessage):
                return function(self, *arguments, **options)
            warn_former(f"{function.__name__}({type(request).__name__})", new)
            return self.driver.run(answer_to(request))

        return call  # type: ignore[return-value]

    return decorate
