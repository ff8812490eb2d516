"""What one training step costs: ours, beside its floors and, where they are given, other libraries."""
