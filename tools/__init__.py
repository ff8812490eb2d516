"""What keeps the repository in order: documents written from results, and the searches behind its recipes."""
