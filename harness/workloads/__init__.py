"""Workloads: generators of clients' operations, by the names that checkers know. Users' own are entry points."""
