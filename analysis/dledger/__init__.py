"""Logs that Java's DLedger has written (io.openmessaging.storage:dledger, 0.3.2 tested), as rows like raft's own. Knows
its files and nothing of its protocol."""
