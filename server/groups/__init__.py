"""Groups of consumers as state machines: classic ones, those whose assignments the server makes, and in `share` those whose
members share partitions. Who is a member, what each reads, who has to wait for what. No trio, no clock, no disk: times come in,
answers and records come out."""
