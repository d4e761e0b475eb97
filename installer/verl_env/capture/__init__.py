"""What others have: package lists, reports and environments, read without running anything of theirs."""
