"""Queue ends: a replica that began to copy in the middle of the log learns where queues end whose messages it lacks."""
