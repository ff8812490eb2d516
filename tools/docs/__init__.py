"""What writes the documents from classes and result files: ``python -m tools.docs``."""
