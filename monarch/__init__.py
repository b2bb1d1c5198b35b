"""Monarch stages the dataset of a job on its nodes' own RAM and SSD."""

__version__ = "0.1.0"
