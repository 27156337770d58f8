"""What runs services: a ledger of what is wanted and what there is, a keeper that brings them together, and runners.

The ledger is outside the inventory, as a real backend's books are. One keeper per data folder is at work, whichever
worker process it lives in; the others wait until it is gone.
"""
