"""Tables as records of a topic."""
