"""Chaos tests: faults injected on purpose; no action may be lost, doubled or stuck."""
