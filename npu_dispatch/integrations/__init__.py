"""Faces of the device for other programs' sake. Nothing here loads by itself."""
