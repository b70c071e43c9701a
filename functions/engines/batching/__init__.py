"""Inputs of many requests computed together: what every engine that answers an input as a whole is fed by.

It knows lengths, order and threads, and no library that computes.
"""
