"""Classic consumer groups as a state machine: who is a member, which generation it is, who has to wait for what. No trio, no
clock, no disk: times come in, answers and records come out."""
