"""Tiny archives in every official format, made of known arrays."""

import gzip
import io
import struct
import tarfile
import zipfile

import numpy as np
from PIL import Image


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels(count, classes, seed=1):
    return np.random.default_rng(seed).integers(0, classes, count, dtype=np.uint8)


def idx(array):
    """Return an array of bytes in the idx format."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, zipped=True):
    """Write four idx files, and return what is in them."""
    parts = pixels(5, 28, 28), labels(5, 10), pixels(3, 28, 28, seed=2), labels(3, 10, seed=3)
    names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    for name, array in zip(names, parts, strict=True):
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array), mtime=0))
        else:
            (folder / name).write_bytes(idx(array))
    return parts


def tar(path, members):
    """Write a gzipped tar of names and bytes; a TarInfo in place of the bytes is put in as it is."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def cifar_records(images, *label_bytes):
    """Return CIFAR's records: labels, then the red, green and blue pixels of each image."""
    columns = [each[:, None] for each in label_bytes]
    return np.concatenate([*columns, images.transpose(0, 3, 1, 2).reshape(len(images), -1)], axis=1).tobytes()


def cifar10_members(extra=None):
    """Return the members of a CIFAR-10 archive with 2 images a batch, and what they hold."""
    x, y = pixels(12, 32, 32, 3), labels(12, 10)
    prefix = "cifar-10-batches-bin/"
    members = {f"{prefix}batches.meta.txt": b"airplane\n"}
    for batch in range(5):
        part = slice(2 * batch, 2 * batch + 2)
        members[f"{prefix}data_batch_{batch + 1}.bin"] = cifar_records(x[part], y[part])
    members[f"{prefix}test_batch.bin"] = cifar_records(x[10:], y[10:])
    return members | (extra or {}), (x[:10], y[:10], x[10:], y[10:])


def cifar100_members():
    x, coarse, fine = pixels(6, 32, 32, 3), labels(6, 20), labels(6, 100, seed=4)
    members = {
        "cifar-100-binary/train.bin": cifar_records(x[:4], coarse[:4], fine[:4]),
        "cifar-100-binary/test.bin": cifar_records(x[4:], coarse[4:], fine[4:]),
    }
    return members, (x[:4], fine[:4], x[4:], fine[4:])


def image(array, kind):
    """Return an array as the bytes of an image file."""
    content = io.BytesIO()
    Image.fromarray(array).save(content, kind)
    return content.getvalue()


def write_gtsrb(folder):
    """Write the three archives of GTSRB with 32x32 images, which resizing must leave alone."""
    x, test = pixels(4, 32, 32, 3), pixels(3, 32, 32, 3, seed=5)
    names = ["00000/00000_00001.ppm", "00000/00000_00000.ppm", "00042/00000_00000.ppm", "00007/00001_00000.ppm"]
    root = "GTSRB/Final_Training/Images/"
    members = {root + name: image(each, "PPM") for name, each in zip(names, x, strict=True)}
    zipped(folder / "GTSRB_Final_Training_Images.zip", members | {f"{root}00000/GT-00000.csv": "Filename;Width\n"})
    images = {f"GTSRB/Final_Test/Images/{number:05}.ppm": image(each, "PPM") for number, each in enumerate(test)}
    # The archive of the test images has a table without classes: it must not be taken for the other one.
    images["GTSRB/Final_Test/Images/GT-final_test.test.csv"] = "Filename;Width\n00000.ppm;32\n"
    zipped(folder / "GTSRB_Final_Test_Images.zip", images)
    rows = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\r\n"
    rows += "".join(f"{number:05}.ppm;32;32;5;5;27;27;{label}\r\n" for number, label in ((0, 16), (1, 1), (2, 38)))
    zipped(folder / "GTSRB_Final_Test_GT.zip", {"GT-final_test.csv": rows})
    return x[[1, 0, 3, 2]], [0, 0, 7, 42], test, [16, 1, 38]


def notmnist_members(each=20):
    """Return the members of a NotMNIST archive: grey PNGs, of which two cannot be read, and which image is which."""
    x = pixels(10 * each, 28, 28)
    known = {}
    for number, picture in enumerate(x):
        known[f"{'ABCDEFGHIJ'[number // each]}/{number}.png"] = picture
    members = {f"notMNIST_small/{name}": image(picture, "PNG") for name, picture in known.items()}
    members |= {"notMNIST_small/A/empty.png": b"", "notMNIST_small/F/broken.png": image(x[0], "PNG")[:40]}
    return members | {"notMNIST_small/A/._0.png": b"Apple's", "notMNIST_small/readme.txt": b"hello"}, known


def faces(root, people, size=250, kind="PNG"):
    """Return the members of a tree of faces: a square of one colour in the middle, black around it."""
    members = {}
    for person, count in people.items():
        for number in range(count):
            picture = np.zeros((size, size, 3), np.uint8)
            edge = max(1, size * 6 // 11 // 2 - 4)  # a little wider than what is cut out: resizing looks beside it
            picture[edge : size - edge, edge : size - edge] = (sum(person.encode()) % 256, number, 200)
            members[f"{root}{person}/{person}_{number:04}.{kind.lower()}"] = image(picture, kind)
    return members


def unpack(folder, members):
    for name, content in members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder
