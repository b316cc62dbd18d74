"""Ingest: messages of an MQTT broker and lines of files become records of a triolog server, each when it is durable."""
