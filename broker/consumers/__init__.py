"""The connected clients, consumers and producers by group: their heartbeats, locks, subscriptions and assignments."""

from broker.consumers.locks import Locks
from broker.consumers.members import ClientsConfig, Consumers, Producers

__all__ = ["ClientsConfig", "Consumers", "Locks", "Producers"]
