"""The web console: the state of the cluster for each recorded second."""
