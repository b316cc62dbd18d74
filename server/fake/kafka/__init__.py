"""What only tests need of a Kafka listener: several nodes, other versions, faults, requests that are watched."""
