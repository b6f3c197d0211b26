"""Escape: what a slave delivers while it acts goes into the logs of other groups' masters, as its own takes nothing."""
