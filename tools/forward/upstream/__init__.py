"""The upstream that records go to: a Kafka, through librdkafka."""
