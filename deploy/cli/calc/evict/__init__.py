"""Cases for the rules of eviction."""
