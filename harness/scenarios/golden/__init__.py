"""Golden frames: recorded frames between RocketMQ's own programs, as test data of our codec.

``scenes`` starts the peers, ``record`` is the relay that records frames between them, ``frames`` keeps a few of each
kind. It starts none of our servers.
"""
