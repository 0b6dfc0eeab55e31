"""The descheduler in the leading bridge: moves pods away from overloaded nodes.

``pod``, ``cluster`` and ``passes`` are pure: evictable pods, cluster state and the result of a pass. ``pods`` follows
pods, ``descheduler`` runs and publishes passes, ``evicting`` evicts, and ``account`` reads eviction credit.
"""
