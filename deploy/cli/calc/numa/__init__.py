"""Cases for the rules of NUMA zones."""
