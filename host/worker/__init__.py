"""What runs where an instance lives: the worker process's event loop, and the running of single calls."""
