"""``mqcluster``: a whole cluster of this project's servers on one machine, to play with.

``plan`` says which servers there are and how each is configured, ``processes`` starts, kills and looks at them,
``cli`` is the command. It uses the servers' packages, and knows nothing of ``harness``, which may use it.
"""
