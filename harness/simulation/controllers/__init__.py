"""Controllers and brokers on simulated time, under faults: ``python -m harness.simulation.controllers``.

The controllers are the shipped cores (``controller.active``, its table of liveness, the replicated metadata) on
replicas of ``raft.sim``; only the shell around them differs: ``process``. Brokers are the shipped cores, too, as
``harness.simulation.brokers`` runs them, with their clients and statements. A seed draws everything, all chance is on
``raft.sim``'s tape.

    plan         the conditions of one seed              process      one controller
    messages     messages and their channels             machine      machines of brokers, and their channels
    fleet        one broker group, and its operator      scene        one run: faults, then healing and progress
    metadata     the state machine of a simulated node   witnesses    brokers' reports of masters that are of no use
    hindered     statements about replacing such a master
    watch        statements about brokers and controllers; it feeds ``controller.metadata.invariants``
    releases     controllers of two releases             depositions  active controllers deposed without knowing it
"""
