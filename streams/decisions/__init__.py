"""Pure decision functions by family, one file each. They take values, and return one value with its terms."""
