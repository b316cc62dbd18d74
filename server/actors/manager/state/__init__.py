"""What is not one log's and is kept in a small file in every log directory."""
