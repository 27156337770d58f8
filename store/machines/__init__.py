"""Machines and their neighbours in the inventory: hooks into its transactions, and the recycle bin's queries."""
