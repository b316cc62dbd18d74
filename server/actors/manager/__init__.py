"""Owner of log directories and topics, and what is looked after in the background (Kafka: LogManager)."""
