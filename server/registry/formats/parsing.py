"""Parses a schema of any type. The packages of a type are loaded with its first schema, or when the registry starts."""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.extras import how_to_install
from ..errors import SCHEMA_TOO_LARGE, InvalidSchemaError, RegistryError
from ..records import AVRO
from .parsed import JSON, MAX_NESTING, MAX_SCHEMA_CHARS, PROTOBUF, TYPES, Dependency, Parsed


def parse(schema_type: str, text: str, dependencies: Sequence[Dependency]) -> Parsed:
    """Return the schema. Dependencies come before the schemas that refer to them. May take a second. Raises RegistryError."""
    if len(text) + sum(len(each.schema) for each in dependencies) > MAX_SCHEMA_CHARS:
        raise RegistryError(SCHEMA_TOO_LARGE, f"the schema with its references has more than {MAX_SCHEMA_CHARS} characters")
    try:
        parsed = _parse(schema_type, text, dependencies)
        parsed.canonical.encode()
    except ModuleNotFoundError as exc:
        raise InvalidSchemaError(f"{schema_type} schemas need {exc.name}: {how_to_install('registry')}") from None
    except RecursionError:
        raise InvalidSchemaError(f"the schema is nested more than {MAX_NESTING} levels deep") from None
    except UnicodeEncodeError:
        raise InvalidSchemaError("the schema has half of a surrogate pair") from None
    return parsed


def _parse(schema_type: str, text: str, dependencies: Sequence[Dependency]) -> Parsed:
    """The classes are imported here, because each needs packages of its own."""
    if schema_type == AVRO:
        from .avro import AvroSchema

        return AvroSchema.parse(text, dependencies)
    if schema_type == JSON:
        from .json_schema import JsonSchema

        return JsonSchema.parse(text, dependencies)
    if schema_type == PROTOBUF:
        from .protobuf import ProtobufSchema

        return ProtobufSchema.parse(text, dependencies)
    raise InvalidSchemaError(f"Invalid schema type {schema_type}. Use {', '.join(TYPES)}")


def serialized(schema: Parsed) -> str:
    """Return the descriptor of a Protobuf schema, in base64."""
    from .protobuf import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    return schema.serialized()
