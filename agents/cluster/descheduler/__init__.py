"""The descheduler in the leading bridge: moves pods away from overloaded nodes.

``pod`` and ``passes`` are pure: evictable pods, cluster state and the result of a pass. ``descheduler`` runs and
publishes passes, and evicts within credit.
"""
