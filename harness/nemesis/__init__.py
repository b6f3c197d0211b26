"""Faults of real processes, their network, disks and clocks; each can be undone.

    sandbox     namespaces that end with the run, whatever ends it: processes, mounts, networks
    network     a host for each server, and links that lose what is sent, one way or both
    shaping     what a bad link does to each packet, seeded
    wire        a process through which packets of shaped links pass
    forwarding  the same for machines without network namespaces: forwarders in front of every server
    disks       a disk of its own for each server, that stalls, fills up and loses power
    shim        a library in processes, which makes their disks fail and their clocks wrong; shim.c is built when needed
    abilities   what this machine and this user can do, in words
    fault       what a fault is, and what it needs of a run
    faults      the registry, by the names that scenarios say; faults_* hold them by subject
"""
