"""A message broker's data plane: its log, its replication and its place among the replicas of a group.

Importing this loads no event loop. It knows controllers by wire alone.
"""
