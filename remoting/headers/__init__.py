"""Typed headers of every code served, by the part of the system that answers."""
