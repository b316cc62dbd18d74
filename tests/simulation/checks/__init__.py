"""What each anomaly of a history is found by. `tests.simulation.checker` has the list."""
