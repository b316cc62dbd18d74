"""Groups of Kafka Streams applications (KIP-1071): what an application is made of, who runs which of its tasks. No trio, no
clock, no disk."""
