"""Filling the Tiers of nodes before a job: each File is read from the Origin once."""
