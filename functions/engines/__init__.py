"""What functions run on: one package per engine, each importing its library only inside a worker."""
