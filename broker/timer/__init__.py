"""Messages that are due at any moment: a wheel of slots, a log of who waits in them, and what is done about it."""
