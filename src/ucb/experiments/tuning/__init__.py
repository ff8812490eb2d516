"""Choosing a method's settings on held-out data. Test data is out of reach while it is done."""
