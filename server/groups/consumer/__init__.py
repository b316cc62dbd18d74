"""Consumer groups (KIP-848): the server assigns each partition to one member."""
