"""Data of a task, as the engine hands it to a method."""


class Given:
    """A task's data in memory: the same examples for training and validation unless others are given."""

    def __init__(self, x, y, validation=None, batch_size=32):
        self.parts = (x, y), (x, y) if validation is None else validation
        self.batch_size = batch_size

    def train(self):
        return zip(*(part.split(self.batch_size) for part in self.parts[0]), strict=True)

    def validation(self):
        return zip(*(part.split(self.batch_size) for part in self.parts[1]), strict=True)
