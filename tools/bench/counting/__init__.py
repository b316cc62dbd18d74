"""Counts the cost of small requests to a server: `requests.count_requests`."""
