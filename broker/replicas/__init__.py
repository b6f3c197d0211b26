"""A broker's place in its group: identity, registration, role, SyncStateSet reports and the lease.

Everything here is sans-IO and told the time. It knows the controller's requests and answers, and no connection.
"""
