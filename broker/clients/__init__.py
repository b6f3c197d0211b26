"""Who is connected: producers and consumers by group, their heartbeats, locks and assignments."""

from broker.clients.locks import Locks
from broker.clients.members import ClientsConfig, Consumers, Producers

__all__ = ["ClientsConfig", "Consumers", "Locks", "Producers"]
