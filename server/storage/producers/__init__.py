"""What a log knows of its producers (Kafka: ProducerStateManager), and what it keeps of that in files."""
