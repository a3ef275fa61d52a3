"""Compiled kernels: bytes and numbers in, numbers and a status out; no files, no Python objects in a loop."""
