"""The policy for missing offsets that a query relies on: `failOnDataLoss` decides.

True, the default: DataLossError, and the query stops before it passes over anything. False: a line in the log of the process
that noticed, and the query goes on with what there is.
"""

from __future__ import annotations

import logging
from typing import Final

from ....protocol.errors import TriologError
from ....protocol.types import TopicPartition

_LOG: Final = logging.getLogger("triolog.spark")
_ADVICE: Final = (
    "records may have been missed. Retention may have overtaken the query, or the topic was deleted or made anew; "
    "begin with a new checkpoint where the data starts now, or set failOnDataLoss to false to go on with what is there"
)


class DataLossError(TriologError):
    """Offsets that were to be read are not there."""


def report(fail: bool, what: str) -> None:
    """Raise or log; `what` names topic, partition and the offsets on both sides."""
    if fail:
        raise DataLossError(f"{what}; {_ADVICE}")
    _LOG.warning("%s; records may have been missed, failOnDataLoss is false: going on", what)


def expired(partition: TopicPartition, wanted: int, log_start_offset: int) -> str:
    """The log begins above what is wanted."""
    return f"{partition}: offset {wanted} is to be read and the log starts at offset {log_start_offset}"


def shrunk(partition: TopicPartition, wanted: int, high_watermark: int) -> str:
    """The log ends below what was promised."""
    return f"{partition}: offsets up to {wanted} are to be read and the log ends at offset {high_watermark}"


def vanished(partition: TopicPartition, wanted: int) -> str:
    """The partition is gone."""
    return f"{partition}: offset {wanted} is to be read and there is no such topic or partition any more"
