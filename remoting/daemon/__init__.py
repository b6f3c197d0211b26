"""What every server process shares: configuration from RocketMQ's keys, flags, signals, logs, small files, metrics.

Knows no particular server and none of their subjects. A server's own keys, flags and figures stay with it.
"""
