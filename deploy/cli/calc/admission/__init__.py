"""Cases for the rules of admission of pods."""
