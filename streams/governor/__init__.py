"""The eviction governor: converts records and time to eviction credit. Pure.

Evictions in any interval of the policy never exceed its budget, in the cluster, per node and per namespace. The
governor counts all evictions that may have happened: ``ledger`` for one boot of a node, ``use`` for all. ``allocation``
distributes the remaining budget. ``governor`` reads and writes records.

Assumptions: a lease reaches its node within a third of its duration. Clocks of governors and agents differ by less than
    a minute at a takeover. A node without Kafka may still spend one credit of an expired lease.
"""
