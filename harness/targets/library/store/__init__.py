"""A service of one process, made to be tortured: it imports nothing of ours, and is the example to copy."""
