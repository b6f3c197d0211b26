"""Groups of master and slaves without controllers on simulated time: slaves that act, masters that come back.

Real are the name servers' core with its member groups, who lives and who may deliver, registration's requests,
pre-online, the ledger, roles, the parts with their rules, escape, locks, and the default HA protocol's cores; journal
and store as in ``harness.simulation.brokers``. Shells that await nothing but requests, files and time run as they are:
``tasks`` drives their coroutines. What a shell does with a nursery, a channel or a cancelled scope is repeated, below.

    plan         what one seed is about                  tasks        drives coroutines of shells without trio
    wire         requests and answers between machines   nameserver   the shipped core on a machine of its own
    shells       what is repeated of shells that await   replication  both ends of the default HA protocol
    machine      a machine, and a member's runs          group        one broker group in the cluster
    clients      who sends, decides, commits and locks   rights       one deliverer, within the table's bounds
    decisions    one end of each transaction
    watch        what is asked of messages and offsets   holders      one holder of a lock
    answers      what slaves answered is in their ledgers
    nemesis      what befalls all of them                scene        faults, then healing and what must follow
    statements   INV_B55 to INV_B61, INV_B63
"""
