"""One file per API family; each registers itself (see broker.registry)."""
