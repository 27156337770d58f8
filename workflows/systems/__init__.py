"""The systems family's workflows: create, deploy, teardown, delete."""
