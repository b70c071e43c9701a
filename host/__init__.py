"""The host: reads manifests, manages the life cycle of instances, and serves HTTP. It never imports a model library."""

__version__ = "0.1.0"
