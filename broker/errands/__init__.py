"""Errands: stores records of POP at another group's master, and reads messages from another group's broker."""
