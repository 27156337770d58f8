"""The leases family's workflows: actions, the clock that starts and ends leases, and the types of reservations."""
