"""Real clients of seven families against a real server that is killed again and again; what they did and were told is checked.

`python -m tests.soak histories` is a run of minutes with many kills, `python -m tests.soak soak` one of hours that also looks
whether the server grows. All is on one machine: its processes share one CLOCK_MONOTONIC, which puts their notes in order.
"""
