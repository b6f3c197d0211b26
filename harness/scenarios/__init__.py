"""Scenarios with real processes: with Java peers, with failovers, and for recordings.

It uses the processes, the simulated fleet and ``mqcluster``; only the demos, benchmarks and tests use it.
"""
