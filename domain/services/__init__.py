"""Services that run on a machine: their definitions, and how they are rolled out. Families that run some share this."""
