"""From the bytes of segments to Arrow batches, in bulk and without I/O: never a step of Python for an entry."""
