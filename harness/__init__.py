"""Quorate against the world: real processes of others, faults, recordings, and what must hold throughout.

It may use every other package, and no other package uses it. What it proves is asked of the other side: of that side's
tools, files and logs.
"""
