"""The log of one partition: appends planned and committed, what is in memory beside the segments, what is cut off."""
