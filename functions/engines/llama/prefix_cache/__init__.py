"""Prefix cache: computed prompts kept in the context, in host memory and on disk, for requests that share them."""
