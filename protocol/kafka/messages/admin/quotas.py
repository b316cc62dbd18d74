"""DescribeClientQuotas (48) and AlterClientQuotas (49; KIP-546)."""

from __future__ import annotations

from ....schema.fields import BOOL, FLOAT64, INT8, INT16, INT32, STRING, struct, wire


@struct
class DescribeClientQuotasComponentData:
    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable="0+")


@struct
class DescribeClientQuotasRequest:
    components: list[DescribeClientQuotasComponentData] = wire([DescribeClientQuotasComponentData])
    strict: bool = wire(BOOL)


@struct
class DescribeClientQuotasEntityData:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@struct
class DescribeClientQuotasValueData:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@struct
class DescribeClientQuotasEntryData:
    entity: list[DescribeClientQuotasEntityData] = wire([DescribeClientQuotasEntityData])
    values: list[DescribeClientQuotasValueData] = wire([DescribeClientQuotasValueData])


@struct
class DescribeClientQuotasResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    entries: list[DescribeClientQuotasEntryData] | None = wire([DescribeClientQuotasEntryData], nullable="0+")


@struct
class AlterClientQuotasEntityData:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@struct
class AlterClientQuotasOpData:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@struct
class AlterClientQuotasEntryData:
    entity: list[AlterClientQuotasEntityData] = wire([AlterClientQuotasEntityData])
    ops: list[AlterClientQuotasOpData] = wire([AlterClientQuotasOpData])


@struct
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasEntryData] = wire([AlterClientQuotasEntryData])
    validate_only: bool = wire(BOOL)


@struct
class AlterClientQuotasResponseEntityData:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@struct
class AlterClientQuotasResponseEntryData:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    entity: list[AlterClientQuotasResponseEntityData] = wire([AlterClientQuotasResponseEntityData])


@struct
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    entries: list[AlterClientQuotasResponseEntryData] = wire([AlterClientQuotasResponseEntryData])
