"""Computes what a cluster could have offered in recorded days, in arrays of nodes by time steps. Pure."""
