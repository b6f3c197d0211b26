"""Parts that all server processes share: configuration by RocketMQ's keys, flags, signals, logs, files, metrics.

Knows no particular server and none of their subjects. A server's own keys, flags and figures stay with it.
"""
