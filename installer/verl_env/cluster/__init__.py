"""Many nodes: their facts, one environment on all of them, carried by the engine that they run already."""
