"""Typed headers of every code served, by the part of the system that answers. Which code has which: its docstring."""
