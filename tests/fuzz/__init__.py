"""Arbitrary input at every surface: no traceback, no hang, no change."""
