"""Timers, messages that are due at any time: a wheel of slots, a log of the messages in them, and their delivery."""
