"""The activities of systems: writes to the inventory, and orders to backends."""
