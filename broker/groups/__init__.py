"""The consumer groups of one broker: which there are, what each may do, and what administrators do with them."""

from broker.groups.table import GroupsConfig, GroupTable

__all__ = ["GroupTable", "GroupsConfig"]
