"""Siblings: brokers of one container. An acting slave hands what comes due to a master among them, by a Unix socket."""
