"""What commands have in common: input, output, progress, failures, the connection, words for times and places."""
