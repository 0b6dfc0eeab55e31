"""Computes the status of Jobs by folding pod events of the bridge. Pure."""
