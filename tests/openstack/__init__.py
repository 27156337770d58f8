"""A real Nova and a real Neutron for tests, in their own environment, and faults between them and their client."""
