"""A key-value store on ``raft`` to be tortured, and its client. They know the library as its users do, no harness."""
