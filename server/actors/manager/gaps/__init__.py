"""Offsets that damage took out of logs: which, who has accepted them, who has passed over them."""
