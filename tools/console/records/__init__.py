"""What records hold, made fit to be shown; pages of them, searches through them, and their live tail."""
