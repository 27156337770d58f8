"""The systems family's activities: inventory writes and orders to backends."""
