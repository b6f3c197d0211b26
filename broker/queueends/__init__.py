"""Where queues end of whose messages a replica has none: it began to copy its master's log behind them."""
