"""Faults put in on purpose, and the proof that nothing is lost, doubled or stuck."""
