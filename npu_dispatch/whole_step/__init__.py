"""Whole training steps: compiled by Inductor, captured in a graph, replayed.

Users call `npu_dispatch.compile_step`. training.py is the loop that it stands for,
step.py decides whether that loop runs or a replay, optimizer.py gives optimizers the
form that a graph can have, and depends.py compares what a graph depends on.
"""
