"""The host: it finds manifests, owns the life of every instance and answers HTTP; it never imports a model library."""

__version__ = "0.1.0"
