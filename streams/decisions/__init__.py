"""Pure decision functions by family, one file each: values in, one value with its terms out.

Here: what all families share, and the decision about a whole node.
"""
