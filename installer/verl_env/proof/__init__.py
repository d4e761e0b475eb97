"""What is shown of an environment, level by level, and never overstated."""
