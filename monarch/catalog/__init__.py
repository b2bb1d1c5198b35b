"""The frozen index of a job's Namespace, laid out as bytes; pure, no I/O."""
