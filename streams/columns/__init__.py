"""Processes the samples of a fetch as NumPy arrays; results are the same as those of the scalar rules."""
