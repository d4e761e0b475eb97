"""The database: facts of CUDA, torch and GPUs, validated rows, their pins; and choosing among them."""
