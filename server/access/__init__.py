"""Users, ACLs and quotas: values and decisions. No trio, no clock, no disk, no sockets."""
