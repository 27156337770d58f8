"""Runs services: a ledger of wanted and running services, a supervisor that reconciles them, and runners.

The ledger is not part of the inventory, like a real backend's. One supervisor per data folder is active, in any worker
process; the others wait until it ends.
"""
