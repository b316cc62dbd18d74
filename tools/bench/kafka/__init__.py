"""The benchmark against Apache Kafka and kfake: `triolog bench-kafka`."""
