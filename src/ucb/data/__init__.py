"""Data: sets by name and where they come from, readers of images, folders, tables and arrays, and streams of tasks."""
