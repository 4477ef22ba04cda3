"""What a device does, and who uses it."""
