"""Real processes under load and faults: a scenario is read, its schedule drawn from a seed, played, and written down.

Cores: ``scenario``, ``schedule``, ``selecting``. Shells: ``node``, ``clients``, ``load``, ``player``, ``directory``.
"""
