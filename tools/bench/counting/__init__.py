"""What a small request costs a server, counted: `requests.count_requests`."""
