"""Coordinators of groups and transactions, and the topics that they keep their state in."""
