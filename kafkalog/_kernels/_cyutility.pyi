# Cython's own code, which all kernels share; nothing in it is for others

__pyx_capi__: dict[str, object]
