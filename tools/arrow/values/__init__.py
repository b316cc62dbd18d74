"""Decodes values to Arrow columns: JSON, msgpack, Avro, text."""
