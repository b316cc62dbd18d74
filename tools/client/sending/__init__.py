"""From records to produce requests, without a socket: batches, order, retries, transactions."""
