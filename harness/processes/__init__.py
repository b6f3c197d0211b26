"""Real processes: started until they are ready, killed, stopped, frozen and looked at, as async contexts of trio.

``handle`` has one process, of whatever make; ``program`` one that reports, ``broker`` a broker of either side. ``ours``
starts this project's servers, ``java`` RocketMQ's, ``node`` a client in JavaScript, ``balanced`` brokers behind a
balancer. They know commands, files, ports and signals; what is played with them is for ``scenarios``, benchmarks and
tests. What users start by ``mqcluster`` outlives its command, and has its own handle there.
"""
