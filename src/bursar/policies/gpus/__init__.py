"""GPUs: the inventory, whole and in fractions, and which GPU of a node a worker gets."""
