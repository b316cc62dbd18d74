"""Groups of consumers: `classic` ones; those whose assignments the server makes, with what they have in common in `assigned`
and the kinds in `consumer`, `share` and `streams`; and their `coordinators`. Without the latter no trio, no clock, no disk:
times come in, answers and records come out."""
