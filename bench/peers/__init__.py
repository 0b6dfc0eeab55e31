"""Peers of the worker: the plain window, as users of other stream processors would write it."""
