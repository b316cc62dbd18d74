"""Work on stopped log directories: repair, reindex, compact, back up, export."""
