"""The fast path of a stream worker: a fetch as arrays. NumPy lives here and in the windows.

Arrays repeat a scalar rule, they never replace it: what they cannot prove goes to the rule itself.
"""
