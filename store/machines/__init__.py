"""The machines family's hooks, and the queries of the recycle bin."""
