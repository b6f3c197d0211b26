"""Messages on disk as RocketMQ keeps them: commit log, consume queues, key index, checkpoint and tables in JSON.

A directory that a Java broker wrote opens here, and one written here opens in a Java broker. Nothing in it opens a
socket or waits; only ``broker.store.directory`` calls the operating system.
"""
