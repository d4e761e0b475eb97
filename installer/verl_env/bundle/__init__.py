"""One file to carry: an environment's wheels, its lock, verl-env and uv, for nodes with no network."""
