"""What can be served: one package per capability, and `functions.engines`, what they run on."""
