"""Putting together: the command line, the one-machine stack, the demo."""

assert __name__ == "slacktide.deploy", "import slacktide.deploy, not deploy: a second copy would be loaded"
