# Made by csrc/extension.cmake.
TORCH_VERSION: str  # the torch this was compiled against, without its local part
