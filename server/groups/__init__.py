"""Groups of consumers. `classic`: the leader makes the assignment. `consumer`, `share` and `streams`: the server makes it;
`assigned` has what these kinds have in common. These are rules, without trio, clock and disk: times come in, answers and
records come out. Their `coordinators` wait, and store."""
