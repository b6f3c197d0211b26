"""POP: the broker gives messages for a time; those that are not acknowledged come back. All state is in the log."""
