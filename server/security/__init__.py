"""Who may log in, and who may do what: values and decisions. No trio, no clock, no disk, no sockets."""
