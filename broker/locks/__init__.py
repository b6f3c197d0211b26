"""Locks on queues, codes 41 and 42. A majority of the group grants them, or one broker that tells the others."""
