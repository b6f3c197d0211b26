"""State machines that are ready to use and to read: a dictionary, locks, a queue. Each is one file and its tests.

Cores like any machine: they know commands and their own state, and nothing of nodes, clients or time.
"""

from __future__ import annotations

from raft.examples.commands import cbor_codec
from raft.examples.dictionary import Dictionary
from raft.examples.locks import Locks
from raft.examples.queue import Queue

__all__ = ["Dictionary", "Locks", "Queue", "cbor_codec"]
