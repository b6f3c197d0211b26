"""Replication of the commit log: epochs, frames, the master's and the slave's side, needed acknowledgements.

Everything here is sans-IO and told the time. It knows offsets and broker ids, and neither files nor controllers.
"""
