"""The ledger: what an acting slave learns is kept on its disk until the master that comes back has it."""
