"""Delayed messages: eighteen levels, each a queue of its own in which whoever is first is due first."""
