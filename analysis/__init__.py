"""Spark over Raft logs: a data source, analyses and a report. ``register`` makes the source known to a session."""
