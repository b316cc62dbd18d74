"""InitProducerId: an id for a producer that is to be recognised. Source: KIP-98, KIP-360."""

from __future__ import annotations

from ....protocol.errors import RequestError
from ....protocol.kafka.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ....protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from .door import Call


async def init_producer_id(call: Call, body: InitProducerIdRequest) -> InitProducerIdResponse:
    """A fresh id, or that of the transactional id; without one the timeout means nothing, whatever clients send."""
    try:
        producer_id, epoch = await call.broker.init_producer(body.transactional_id, body.transaction_timeout_ms)
    except RequestError as exc:
        return InitProducerIdResponse(error_code=exc.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
