"""Transactions: halves wait for a decision; producers decide, or are asked by the check loop."""
