"""The coordinators of groups: who waits, the clock, the log and the memory. The rules are in the rooms of each kind."""
