"""`triolog forward`, measured: how fast, with how much memory and processor time, and what the source notices of it."""
