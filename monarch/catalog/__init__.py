"""The frozen index of a job's Namespace as bytes: pure functions, without I/O."""
