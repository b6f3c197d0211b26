"""Quorate against the world: real processes of others, faults, recordings, and what must hold throughout.

    simulation             clusters on virtual time: no process, no socket
    processes              real processes, of our servers, of Java's, of others
    fleet                  simulated brokers on real sockets
    scenarios              what is played with them: with Java peers, with failovers, for recordings
    demo                   a cluster to look at, while it loses masters and controllers

It may use every other package, and no other package uses it. What it proves is asked of the other side: of that side's
tools, files and logs.
"""
