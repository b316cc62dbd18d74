"""The whole server in one process, in a world that a seed decides: scheduler, clock, disk, network, clients and operator.

`simulate(script)` gives the history of a world; two runs of a script give the same one. `python -m tests.simulation` runs many.
"""
