"""Clusters on virtual time: no process, no socket, no real second.

``worlds`` has whole servers on memory streams, one world after another built from the one below.
"""
