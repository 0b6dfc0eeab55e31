"""What the Job controller decides from a Job's pods. Pure."""
