"""A fetch as arrays, and the windows over samples that NodeMetric is averaged from. NumPy lives here alone.

Arrays repeat a scalar rule, they never replace it: what they cannot prove goes to the rule itself.
"""
