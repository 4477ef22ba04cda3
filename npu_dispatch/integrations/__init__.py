"""The device under names that other programs look for. Nothing here loads by itself."""
