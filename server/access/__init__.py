"""Who may log in, who may do what, and how much of it: values and decisions. No trio, no clock, no disk, no sockets."""
