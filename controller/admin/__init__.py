"""``mqadmin``: questions and orders of an operator to controllers, name servers and brokers, ours or the original's."""
