"""Memory estimates: which devices, layers, slots and context fit, decided before any weight is read."""
