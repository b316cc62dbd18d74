"""The coordinators of groups: waiting callers, the clock, the log and the memory. The rules are in the folder of each kind."""
