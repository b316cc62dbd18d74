"""Kafka's protocol on a broker: sessions, and one module per group of APIs with what each of them does."""
