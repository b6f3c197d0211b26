"""Many brokers on one machine, each a process, under one supervisor that is the guardian of all: ``mqbrokercontainer``.

``config``, ``hosting`` and ``records`` decide: which brokers there are, what each is started with, who may stand beside
whom, and which process of an earlier supervisor is still the broker it was. ``nest`` makes their processes by forking,
``supervisor`` keeps them and answers codes 902, 903, 25 and 26, ``cli`` is the command.
"""
