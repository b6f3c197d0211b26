"""Finds logs: file systems, and the directories of nodes below a path."""
