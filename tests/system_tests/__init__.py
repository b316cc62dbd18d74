"""Apache Kafka's own system tests (`tests/kafkatest` of its sources, with ducktape) against triolog, or against Apache Kafka.

The suite does not run them: no registry has their sources. `run` is the command; docs/testing.md has the results.
"""
