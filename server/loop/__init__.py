"""The event loop: turns, the reactor, deadlines, and what waits. The ground floor: it knows no log and no protocol."""
