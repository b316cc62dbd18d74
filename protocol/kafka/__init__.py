"""Kafka's wire protocol: its APIs, messages and connections, as bytes and values; no sockets."""
