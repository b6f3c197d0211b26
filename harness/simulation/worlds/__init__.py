"""Whole servers in one trio program on virtual time, on memory streams and on simulated disks.

    streams      a client and a server of the remoting layer
    controllers  a controller group, and the simple brokers that it controls
    brokers      brokers, a name server, controllers, and the client that users have
    disks        disks that stall, for brokers
    nodes        a raft group alone, on storage in memory
    sending      a request header that the broker takes and our client never sends

They are for tests, those of users too: docs/tutorial/test-a-broker-cluster.md. They run shells and cores; the
simulations of cores alone have no event loop. Run them under trio's autojump clock, or from a seed with
``raft.virtual``, whose network they use.
"""
