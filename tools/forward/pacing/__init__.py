"""When and how much may be sent. No threads, no sockets; time is an argument."""
