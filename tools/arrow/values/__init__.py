"""What values are decoded to, and how: JSON, msgpack, Avro, text."""
