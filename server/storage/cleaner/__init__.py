"""Log compaction: of the records with one key, only the last one is kept (Kafka: LogCleaner, Cleaner)."""
