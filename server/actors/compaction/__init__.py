"""Compacting and scrubbing, in processes of their own."""
