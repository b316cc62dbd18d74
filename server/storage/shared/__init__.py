"""Files that other processes write or read beside the server: staged batches, leased segments."""
