"""What a machine is: measured by probes, or described."""
