"""Errands at other groups' brokers: records of POP are stored at one of them, and messages are read from one."""
