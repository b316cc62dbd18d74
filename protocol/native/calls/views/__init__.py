"""Calls that show what there is, to people who look after a server and to what draws it. They change nothing."""
