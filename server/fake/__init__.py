"""Test control of a running broker: faults, received requests, logs, groups, its clock, its life. For tests only."""
