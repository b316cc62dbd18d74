"""Transactions: their ids, their states, the coordinator that ends them, and the ones that hang."""
