"""Checkers give verdicts on histories. They are pure functions of events; only ``chosen`` loads a user's code.

    verdict          true, false or unknown, and why; unknown never counts as passed
    models           sequential specifications: register, set, log, key-value, queue, mutex
    linearizability  searches an order of all operations that such a model explains
    queues           nothing lost, doubled, out of order, unseen or phantom, by values that are sent once
    recovery         recovery times after faults, by four definitions
    chosen           chooses the checkers for a history, by its functions or by name, also a user's own
"""
