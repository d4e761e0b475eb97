"""Which verl environment works on this node, and how to get exactly that one."""

__version__ = "0.1.0"
