"""RocketMQ's name server: who is registered, where topics live, and a key-value table.

``requests`` and what it stands on are sans-IO; ``server`` and ``cli`` do the I/O.
"""
