"""Attacks on running systems of real processes."""
