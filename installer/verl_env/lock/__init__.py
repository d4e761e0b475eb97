"""From pins to a PEP 751 lockfile, and back."""
