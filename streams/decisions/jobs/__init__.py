"""Rules of the Job controller: a Job's status from its pods. Pure."""
