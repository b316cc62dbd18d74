"""Values that begin with the id of a schema, decoded by a schema registry."""
