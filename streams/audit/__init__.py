"""Who was evicted, held back or frozen, and a file of it in which every change is found. Pure."""
