"""Every option of `format("triolog")`, and every option of Spark's own Kafka source and sink with its meaning here."""
