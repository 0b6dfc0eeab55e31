"""Pure decision functions by family. They take values, and return one value with its terms."""
