"""Regular expressions in Kafka's requests, where RE2 is installed and where it is not."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Final

from ....protocol.errors import UnsupportedVersionError
from ....protocol.patterns import MISSING, compiled_pattern, load_patterns

LOGGER: Final = logging.getLogger(__name__)

NOT_RESOLVED: Final = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It must be upgraded "
    "to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a SubscriptionPattern."
)
"""What Kafka says of a broker without SubscribedTopicRegex. The Java client shows the message of an UNSUPPORTED_VERSION only
when it has this in it, and says otherwise that the broker has no KIP-848 (ConsumerHeartbeatRequestManager)."""


def pattern_of(text: str) -> Callable[[str], bool]:
    """`compiled_pattern`; the log says once when RE2 is missing. Raises RequestError."""
    try:
        return compiled_pattern(text)
    except UnsupportedVersionError:
        _warn()
        raise


def check_subscription() -> None:
    """Check that consumers can subscribe by pattern; log a warning once if they cannot. Raises UNSUPPORTED_VERSION."""
    if not load_patterns():
        _warn()
        raise UnsupportedVersionError(f"{MISSING}. {NOT_RESOLVED}")


@functools.cache
def _warn() -> None:
    LOGGER.warning("a client's regular expression is refused, and so are all that follow: %s", MISSING)
