"""Filters over properties: expressions of SQL92 as RocketMQ reads them, and which of them groups have registered."""
