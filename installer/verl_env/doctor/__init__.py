"""What is wrong, why it matters, and the one thing to do: with a node, an environment, a cluster or a failed run."""
