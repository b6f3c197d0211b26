"""Controllers and model brokers on simulated time, under faults: ``python -m harness.controllers``.

The controllers are the shipped cores (``controller.active``, its table of liveness, the replicated metadata) on
replicas of ``raft.sim``; only the shell around them is another, ``process``. Brokers are models that do what a broker
does towards controllers and what its data safety hangs on. A seed draws everything, all chance is on ``raft.sim``'s
tape.

    plan         what one seed is about              process      one controller
    messages     what travels, and by which channel  host         machines of brokers, and their channels
    broker       identity, role, SyncStateSet            replication  a broker's log: epochs, offsets, what is confirmed
    metadata     the state machine, as a node has it     scene        all of it: faults, then healing and progress
    watch        what must hold between brokers and controllers; it feeds ``controller.metadata.invariants``
"""
