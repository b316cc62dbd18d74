"""The call `statistics`: what a server has counted since its start, for people and programs that watch it."""

from __future__ import annotations

from ..declaration import wire
from ..fields import Body
from ..kinds import MAP
from ..structs import RequestMessage, ResponseMessage, struct


@struct
class StatisticsRequest(RequestMessage):
    """Everything, as it is now."""

    api = "statistics"


@struct
class StatisticsResponse(ResponseMessage):
    """The map that docs/native-protocol.md lists. It is handed through: a newer server may say more, an older one less."""

    api = "statistics"

    statistics: Body = wire(MAP)
