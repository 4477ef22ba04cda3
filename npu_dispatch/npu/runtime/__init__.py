"""The runtime: when it starts, its devices, their errors and its end."""
