"""Leases: their actions, the clock that starts and ends them, and the kinds of things that can be reserved."""
