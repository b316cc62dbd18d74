"""HTTP for people and programs beside the logs: health and metrics."""
