"""Gives an agent the key of its node, for the pod-bound ServiceAccount token that names the node."""
