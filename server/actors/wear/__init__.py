"""What logs cost the flash below them, and how long it lasts."""
