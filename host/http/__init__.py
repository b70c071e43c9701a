"""What every response has in common, whoever renders it: event streams, error bodies, request ids."""
