"""Reads logs of Java's DLedger as rows like those of raft's own logs.

Tested with io.openmessaging.storage:dledger 0.3.2. Knows its files and nothing of its protocol.
"""
