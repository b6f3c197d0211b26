"""Scenarios with real Java peers: what works with the original, and what the Java side says about it.

``python -m harness.scenarios.interop`` runs them and prints which ran, which failed, and which did *not* run and why.
"""
