"""The replicated metadata of broker groups: a deterministic state machine, decided inside ``apply``.

Knows groups, replicas, SyncStateSets and epochs. No clock, no sockets, no table of who is alive: what a decision needs
to know of the world travels in its command, so every controller that applies the same log computes the same.

    groups      what is kept of a broker group          alter, elect, policy, eligible,   the decisions: pure functions
    commands    what may be asked, with observations    identity, clean, imports          of a group and a command
    outcomes    what came of it, as values              resolve     a name without a cluster -> the group that is meant
    codec       commands <-> bytes, by way of fields    snapshot    all groups <-> bytes
    events      what changed, for metrics and traces    invariants  one function per property
    machine     ``MetadataMachine``: all of it as a state machine of ``raft``
"""
