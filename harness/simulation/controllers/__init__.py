"""Controllers and brokers on simulated time, under faults: ``python -m harness.simulation.controllers``.

The controllers are the shipped cores (``controller.active``, its table of liveness, the replicated metadata) on
replicas of ``raft.sim``; only the shell around them is another, ``process``. Brokers are the shipped cores, too, as
``harness.simulation.brokers`` runs them, with their clients and all that is asked of them there. A seed draws
everything, all chance is on ``raft.sim``'s tape.

    plan         what one seed is about                  process      one controller
    messages     what travels, and by which channel      machine      machines of brokers, and their channels
    fleet        one broker group, and its operator      scene        all of it: faults, then healing and progress
    metadata     the state machine, as a node has it     witnesses    what brokers say of masters of no use
    hindered     what must hold where one is replaced
    watch        what must hold between brokers and controllers; it feeds ``controller.metadata.invariants``
"""
