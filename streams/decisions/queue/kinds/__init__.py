"""Reads the kinds that a queue starts and stops beside Jobs: pod sets, states, and the writes of a start and a stop.

``rows`` has a row of paths for each kind; users add rows. Kinds whose pods need arithmetic have a module. Pure.
"""
