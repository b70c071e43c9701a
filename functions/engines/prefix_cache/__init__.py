"""Prefix caching for all engines: the longest common prefix of token lists, and an LRU index of cached prefixes.

The decoder's slots and host cache, the scorer's prefixes and the prompt KV cache on torch keep what they compute under
this index; each frees the memory of what it evicts.
"""
