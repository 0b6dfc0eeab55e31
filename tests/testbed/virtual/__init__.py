"""A virtual machine's kernel in memory, for fast simulations."""
