"""Computes the batch, mid and free resources of a node, and when to write them. Pure."""
