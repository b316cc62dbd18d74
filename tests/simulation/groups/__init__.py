"""Members of groups in a simulated world, and those who stage records: what they did and were told, and what it means.

`lives` says who lives when, `events` what a history says of it, `ownership`, `deliveries` and `stages` are its checkers. The
members themselves are among the other `clients`.
"""
