"""Clients for ``chaos run`` that speak lines of JSON. They know a service by its own client, and no fault."""
