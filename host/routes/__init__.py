"""The host's own endpoints: models, functions, health, metrics. Functions bring theirs with them."""
