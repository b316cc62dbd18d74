"""What takes more than one call, as generators: requests out, answers in."""
