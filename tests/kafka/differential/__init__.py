"""The same requests to Apache Kafka and to triolog, and a comparison of everything in their answers."""
