"""The state of a log's producers (Kafka: ProducerStateManager), and its files."""
