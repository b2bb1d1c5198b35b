"""The one process per node and job that owns its Catalog, Tiers and Stager."""
