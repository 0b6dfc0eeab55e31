"""Cases for the rules of CPU suppression."""
