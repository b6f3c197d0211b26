"""Consumers' pulls: what is checked, what is read, and how a pull waits for a message."""
