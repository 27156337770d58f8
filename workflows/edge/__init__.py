"""The edge family's workflows: actions on cloudlets, instances and policies, and their companions."""
