"""Groups whose assignments the server makes, as far as consumer, share and Streams groups are alike: members with epochs, plans
on a draft, records, sessions, descriptions. A kind adds its assignor, its records and its own rules."""
