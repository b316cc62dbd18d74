"""Coverage-guided fuzzing: what is fed with bytes that nobody means well with. `python -m tests.fuzzing --help`."""
