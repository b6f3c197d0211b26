"""Escape: an acting slave stores the messages that it delivers in the logs of other groups' masters."""
