"""Delayed messages: eighteen levels, each a queue of its own in which the first message is due first."""
