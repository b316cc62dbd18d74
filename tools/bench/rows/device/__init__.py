"""What reaches the device for what is appended."""
