"""The eviction governor, pure: records and the time go in, leases come out.

The law: in no window of the policy's interval are there more evictions than its budget, in the cluster, on a node or
in a namespace. It is kept by counting what may have happened, not what was reported: ``ledger`` for one boot of a
node, ``use`` for all. ``allocation`` decides who gets what there is room for, ``governor`` reads and writes records.

What it rests on: a lease reaches its node, if at all, within a third of its time after it was granted; and clocks of
governors and agents are less than a minute apart when one governor takes over from another. Beyond it goes only a
node whose log is away: it may spend one credit of a lease that is over.
"""
