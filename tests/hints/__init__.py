"""Refusals of each family as a user meets them, each with what its hint leads to."""
