"""What tests do with a running broker beside being its clients: faults, the requests it got, its logs and groups, its clock,
its life. For tests only."""
