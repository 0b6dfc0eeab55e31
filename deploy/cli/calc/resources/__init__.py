"""Cases for the rules of batch, mid and free resources."""
