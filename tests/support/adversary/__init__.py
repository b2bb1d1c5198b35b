"""Random file operations in a staged tree, each followed by a look at every name."""
