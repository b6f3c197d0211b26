"""Transactions: halves that wait for a decision, how each ends, and who is asked."""
