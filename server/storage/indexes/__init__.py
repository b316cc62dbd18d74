"""Sparse indexes: fixed entries in files, searched by binary search (Kafka: AbstractIndex and its classes)."""
