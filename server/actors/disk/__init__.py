"""Where disk operations run: threads and descriptors."""
