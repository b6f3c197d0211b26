"""Checkers: histories in, verdicts out. Pure functions of events, but for ``chosen``, which loads a user's own.

    verdict          true, false or unknown, and why; unknown never counts as passed
    models           what a system would do if it were one: register, set, log, key-value, queue, mutex
    linearizability  is there an order of all operations that such a model explains
    queues           nothing lost, doubled, out of order, unseen or from nowhere, by values that are sent once
    recovery         how long until it served again, by four definitions, and what was lost
    chosen           the checkers for a history, by what is in it or by name, and the user's own
"""
