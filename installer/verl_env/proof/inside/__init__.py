"""Programs that an environment's own Python runs; nothing of verl_env can be imported there."""
