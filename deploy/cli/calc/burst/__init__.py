"""Cases for the rules of CPU burst."""
