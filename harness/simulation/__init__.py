"""Clusters on virtual time. They use no process, no socket and no real second.

    controllers   the cores of controllers and brokers under every fault, for millions of events
    brokers       the cores of brokers alone, with small controllers
    worlds        whole servers on memory streams, for tests
"""
