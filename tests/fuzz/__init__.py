"""Random data at every input: no traceback, no hang, no change."""
