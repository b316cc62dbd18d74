"""The native protocol on a broker: its session, and what each call does."""
