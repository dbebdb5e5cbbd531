"""Training: the only room that imports Lightning."""
