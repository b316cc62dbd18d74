"""Test features of a Kafka listener: several nodes, other versions, faults, watched requests."""
