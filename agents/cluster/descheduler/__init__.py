"""Who is to leave loaded nodes for ones that are not: passes over the cluster, by the bridge that leads.

``pod``, ``cluster`` and ``passes`` are pure: which pods may go, what is known, and what a pass comes to; ``pods``
follows pods, ``descheduler`` runs the passes and publishes them, and ``evicting`` carries out what is no
dry run, as far as its ``account`` with the governor goes.
"""
