"""Targets of runs. A target is one file that says how to start its processes and how to speak to its clients."""
