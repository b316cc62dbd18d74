"""All logs of a server: reading and writing them, directories, topics, retention and holds, compaction, scrubbing, leases, wear."""
