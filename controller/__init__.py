"""The control plane of a RocketMQ cluster: who is master of each broker group, and who may become it.

Knows ``raft`` and ``remoting``; knows nothing of brokers' stores. ``controller.metadata`` is the replicated part.
"""
