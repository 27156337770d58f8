"""Volumes in the inventory."""
