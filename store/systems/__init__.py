"""Systems in the inventory."""
