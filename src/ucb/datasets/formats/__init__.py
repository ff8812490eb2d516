"""Official files as their authors publish them, made into arrays. Nothing is unpickled, nothing unpacked on disk."""
