"""Groups of Kafka Streams applications (KIP-1071): the topology of an application, and the tasks of its members. No trio, no
clock, no disk."""
