"""The eviction governor, pure: records and time in, eviction credit out.

In any interval of the policy there are at most as many evictions as its budget, in the cluster, per node and per
namespace. The governor counts evictions that may have happened, reported or not: ``ledger`` for one boot of a node,
``use`` for all. ``allocation`` distributes the remaining budget. ``governor`` reads and writes records.

Assumptions: a lease reaches its node within a third of its duration. Clocks of governors and agents differ by less than
    a minute at a takeover. A node without Kafka may still spend one credit of an expired lease.
"""
