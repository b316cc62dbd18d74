"""Ingest: messages of an MQTT broker become records of a triolog server, and are acknowledged when those are durable."""
