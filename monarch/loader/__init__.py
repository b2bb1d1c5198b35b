"""The loader: exact shuffled epochs of packed Records, read by large Groups."""
