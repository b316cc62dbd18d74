"""What a world keeps its data on, what is damaged and lost there, and the processes that read it beside the server."""
