"""All logs of a server: log directories, topics, retention and holds, compaction, scrubbing, leases, wear."""
