"""Where disk operations run: threads, descriptors, turns of the event loop."""
