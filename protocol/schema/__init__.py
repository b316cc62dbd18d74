"""Kafka's message structures: declared once with their versions, read and written by functions that are made from that
(Kafka: the message generator, KIP-482 for flexible versions)."""
