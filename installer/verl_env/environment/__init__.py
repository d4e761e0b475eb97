"""An installed lock: its folder, its variables, its receipt."""
