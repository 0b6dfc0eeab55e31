"""Evictions on the node: which pods are terminating, and which are held back for lack of credit."""
