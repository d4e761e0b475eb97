"""One file a command: its arguments, and a `run` that returns a Result. Rendering ends here; deciding is below."""
