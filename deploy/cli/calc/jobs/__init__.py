"""Cases for the rules of Jobs."""
