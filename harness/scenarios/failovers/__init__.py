"""Hundreds of failovers of real processes under every fault that this machine can make, with checked histories.

    recording   the history of producers and consumers, written down and checked
    traffic     producers, readers that read messages twice, and the last reading
    faults      the faults of a cluster, each with its undoing
    campaign    the schedule: fault, heal, settle, again; and the comparison of logs at the end

Namespaces, networks and disks are those of ``harness.nemesis``. ``python -m harness.scenarios.failovers`` runs it. A
promise is checked for groups whose mode makes it; breaches in other groups are counted. ``mqcluster`` starts the
servers, as for users.
"""
