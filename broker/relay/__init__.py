"""The old address keeps answering: what clients send to a broker that is master no longer goes on to the one that is.

``forwarding`` carries requests over and answers and pushes back; a broker that was deposed uses it for a while, and
``guardian``, which holds a broker's listening socket beyond the death of its process.
"""
