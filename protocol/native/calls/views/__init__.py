"""Calls that show what there is: to people who look after a server, and to what draws pictures of it. Nothing is changed by them."""
