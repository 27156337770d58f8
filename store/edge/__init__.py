"""The edge family's part in the inventory."""
