"""Whole servers in one trio program on virtual time: memory streams for a network, disks that forget for disks.

    streams      a client and a server of the remoting layer
    controllers  a controller group, and simple brokers that it rules
    brokers      brokers, a name server, controllers, and the client that users have
    nodes        a raft group alone, on storage in memory
    sending      a header that the broker takes and no client of ours sends

They are for tests, of this project's users, too: docs/tutorial/test-a-broker-cluster.md. They run shells and all; the
simulations of cores alone know no event loop. Run them under trio's clock that jumps, or from a seed with
``raft.virtual``, whose network they are on.
"""
