"""The scheduler extender for pods with schedulerName ``koord-scheduler``: filters and scores nodes."""
