"""Who the peer of a connection is and what it may do, whatever protocol it speaks."""
