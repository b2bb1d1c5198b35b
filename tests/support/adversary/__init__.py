"""Random file operations in a staged tree, with a check of every name after each."""
