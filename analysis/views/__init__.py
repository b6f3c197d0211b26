"""Typed views of what the data source reads: one DataFrame for each kind of thing that logs and traces tell.

Functions from DataFrames to DataFrames; ``analysis.logs`` calls them. Nothing here judges; questions do.
"""
