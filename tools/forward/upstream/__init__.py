"""Where records go: a Kafka, through librdkafka."""
