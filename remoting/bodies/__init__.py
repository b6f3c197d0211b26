"""Typed bodies of every code served, by the part of the system that they belong to."""
