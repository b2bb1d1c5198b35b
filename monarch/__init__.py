"""Monarch stages the dataset of a job on its nodes' own RAM and SSD."""

__version__ = "0.2.0"
