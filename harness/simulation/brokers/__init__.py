"""The shipped cores of a broker group on simulated time, under faults: ``python -m harness.simulation.brokers``.

Real are the replicas manager with its role machine, both sides of auto-switch replication, their wire format, epochs
and epoch file, the SyncStateSet's bookkeeping, the put path with its acknowledgements, the journal, and the store, on a
disk that loses unsynced writes; and the controller's metadata, liveness table and decisions. Replaced are sockets,
threads, tasks, and the controllers' raft, which ``harness.simulation.controllers`` simulates: one copy of the metadata
stands for the group of controllers, and the active one fails over. A seed draws everything; all chance is on
``raft.sim``'s tape.

    plan        what one seed is about                 host         a machine: its disk, its clock, its broker's runs
    controller  the active controller, and failovers   process      one run of a broker: the cores and their turns
    streams     connections that break                 replication  streams and waits for the shipped replication
    client      producers, and who reads               scene        all of it: faults, then healing and progress
    features    parts, in turns                        delays       of them: delayed messages, and what is asked of them
    judging     what each of them is asked             timers       of them: timers, and what is asked of them
    transactions, popping, deletions    of features, as well
    statements  B1-B54, B62, B64, C14-C17: properties       contract     what each mode may lose
    watch       asks them: roles, puts, who is in sync copies       of them: what slaves store and acknowledge
    runs        of them: each start of a broker        doubts       of them: logs that outlived their machine
    history     of them: what consumers saw            demands      of them: what operators demand
    acting      groups without controllers, whose slaves act for their masters
"""
