"""Cases for the rules of the job queue."""
