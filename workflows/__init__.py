"""Decisions over time. No I/O: the inventory and the clouds are reached through activities."""
