"""Golden frames: what RocketMQ's own programs said to each other, as test data of our codec.

``scenes`` starts the peers, ``record`` is the relay between them that writes frames down, ``frames`` keeps a few of
each kind. It starts no server of ours.
"""
