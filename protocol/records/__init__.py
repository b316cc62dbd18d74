"""Kafka record batches, version 2: encode, decode, check, build (KIP-98; Kafka: DefaultRecordBatch, DefaultRecord)."""
