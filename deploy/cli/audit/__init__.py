"""``slacktide audit``: what was done to pods, and a file that shows every change made to it."""
