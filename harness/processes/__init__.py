"""Handles of real processes, which start, kill, stop, pause and watch them, as async contexts of trio.

``handle`` is for any process, ``program`` for one that reports, ``broker`` for a broker, ours or Java's. ``ours``
starts this project's servers, ``java`` RocketMQ's, ``node`` a client in JavaScript, ``balanced`` brokers behind a
balancer. They know commands, files, ports and signals; ``scenarios``, benchmarks and tests use them. ``mqcluster`` has
its own handles, since its servers outlive the command.
"""
