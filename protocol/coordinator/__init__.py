"""The records of the two logs that coordinators keep: `__consumer_offsets` and `__transaction_state`, byte for byte Kafka's."""
