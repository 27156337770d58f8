"""The edge family's hooks, queries and transactions."""
