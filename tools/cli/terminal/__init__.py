"""The code that commands share: input, output, progress, failures, the connection, texts for times and places."""
