"""All logs of a server: reading and writing them, directories, topics, retention, compaction, scrubbing, leases, wear."""
