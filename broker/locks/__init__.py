"""Locks on queues over the brokers of a group: a majority of them, or one that tells the others. Codes 41 and 42."""
