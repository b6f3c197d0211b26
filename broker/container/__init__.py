"""The container ``mqbrokercontainer``: many brokers on one machine, each a process, under one supervisor.

``config``, ``hosting`` and ``records`` decide which brokers there are, how each is started, which may run beside which,
and which process of an earlier supervisor is still the same broker. ``nest`` forks the processes, ``supervisor`` is the
guardian of each and answers codes 902, 903, 25, 26 and 28, ``cli`` is the command.
"""
