"""Hundreds of failovers of real processes under every fault that this machine can make, and what clients saw of them.

    recording   what producers were told and consumers saw, written down and judged as any other history
    traffic     producers, readers that look twice, and the last reading
    faults      what is done to a cluster, each with its undoing
    campaign    the schedule: fault, heal, settle, again; and what must hold of the logs at the end

Namespaces, networks and disks are those of ``harness.nemesis``. ``python -m harness.scenarios.failovers`` runs it.
Promises are asked of groups whose mode makes them, and counted in the others. The servers are those of ``mqcluster``,
as users start them.
"""
