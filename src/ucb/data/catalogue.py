"""The data sets there are: facts only.

Where a hash comes from: SHA-256 of MNIST, FashionMNIST, CIFAR, SVHN and lfw.tgz as tensorflow-datasets lists them, of
lfw-funneled.tgz as scikit-learn does; MD5 of raw idx files and of NotMNIST's archives as packages that load them list
them; MD5 of the GTSRB test archives as torchvision lists them, of its final training archive as other loaders do
(torchvision fetches the smaller training set of an earlier competition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ucb.bayes.checks import nearest


@dataclass(frozen=True)
class OfficialFile:
    """A file as its authors publish it. ``digest`` is ``algorithm:hex``, None where nobody publishes one.

    ``instead`` are other files that serve the same purpose: a raw form, or another edition.
    """

    name: str
    urls: tuple[str, ...] = ()
    digest: str | None = None
    instead: tuple[OfficialFile, ...] = ()

    def forms(self) -> tuple[OfficialFile, ...]:
        """Return the file itself, then those that serve the same purpose."""
        return (self, *self.instead)


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set before any of its files are there.

    ``train`` and ``test`` are how many images there are, None where that depends on what is imported. ``classes`` is
    None where the classes are those of the folders. ``folders`` says that an unpacked folder can be imported too.
    ``wrong`` says, for files that are easily taken for the right ones, what they are.
    """

    name: str
    title: str
    files: tuple[OfficialFile, ...]
    shape: tuple[int, ...]
    classes: tuple[str, ...] | None
    n_classes: int
    note: str
    train: int | None = None
    test: int | None = None
    folders: bool = False
    packaged: bool = False
    wrong: Mapping[str, str] = field(default_factory=dict)


def find(name: str) -> DataSet:
    """Return the data set of that name; for a wrong one the nearest right ones are offered."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise ValueError(f"there is no data set {name!r}: {nearest(name, CATALOGUE)}")


# What the classes are called, in the order of their labels.
DIGITS = tuple("0123456789")
LETTERS = tuple("ABCDEFGHIJ")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""
CIFAR100 = tuple(_CIFAR100.split())
_SIGNS = """
    Speed limit (20km/h), Speed limit (30km/h), Speed limit (50km/h), Speed limit (60km/h), Speed limit (70km/h),
    Speed limit (80km/h), End of speed limit (80km/h), Speed limit (100km/h), Speed limit (120km/h), No passing,
    No passing for vehicles over 3.5 metric tons, Right-of-way at the next intersection, Priority road, Yield, Stop,
    No vehicles, Vehicles over 3.5 metric tons prohibited, No entry, General caution, Dangerous curve to the left,
    Dangerous curve to the right, Double curve, Bumpy road, Slippery road, Road narrows on the right, Road work,
    Traffic signals, Pedestrians, Children crossing, Bicycles crossing, Beware of ice/snow, Wild animals crossing,
    End of all speed and passing limits, Turn right ahead, Turn left ahead, Ahead only, Go straight or right,
    Go straight or left, Keep right, Keep left, Roundabout mandatory, End of no passing,
    End of no passing by vehicles over 3.5 metric tons
"""
TRAFFIC_SIGNS = tuple(sign.strip() for sign in _SIGNS.split(","))

FASHION = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
MNIST = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
TORONTO = "https://www.cs.toronto.edu/~kriz/"
STANFORD = "http://ufldl.stanford.edu/housenumbers/"
GTSRB = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
BULATOV = "http://yaroslavvb.com/upload/notMNIST/"
UMASS = "http://vis-www.cs.umass.edu/lfw/"
FIGSHARE_FUNNELED = "https://ndownloader.figshare.com/files/5976015"

# Hashes of idx files, in the order of their names: SHA-256 of the gzipped ones, MD5 of the raw ones.
IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MNIST_SHA256 = """
    440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
    3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
    8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
    f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
"""
MNIST_MD5 = """
    6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624
    2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637
"""
FASHION_SHA256 = """
    3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
    a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
    346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
    67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
"""
FASHION_MD5 = """
    f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9
    8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965
"""


def _idx(sites: tuple[str, ...], zipped: str, raw: str) -> tuple[OfficialFile, ...]:
    """Return four idx files, each gzipped or raw."""
    return tuple(
        OfficialFile(
            f"{name}.gz",
            tuple(f"{site}{name}.gz" for site in sites),
            f"sha256:{sha256}",
            (OfficialFile(name, (), f"md5:{md5}"),),
        )
        for name, sha256, md5 in zip(IDX_NAMES, zipped.split(), raw.split(), strict=True)
    )


def _file(site: str, name: str, digest: str, *instead: OfficialFile) -> OfficialFile:
    return OfficialFile(name, (site + name,), digest, instead)


def _cifar(classes: tuple[str, ...], sha256: str, fine: str = "") -> DataSet:
    number, binary = len(classes), f"cifar-{len(classes)}-binary.tar.gz"
    wrong = {
        f"cifar-{number}-python.tar.gz": f"is the Python version, made of pickles: fetch the binary version, {binary}"
    }
    return DataSet(
        f"cifar{number}",
        f"CIFAR{number}",
        (_file(TORONTO, binary, f"sha256:{sha256}"),),
        (32, 32, 3),
        classes,
        number,
        f"Krizhevsky, from Tiny Images; no licence is stated{fine}",
        train=50_000,
        test=10_000,
        folders=True,
        wrong=wrong,
    )


OWN_SPLIT = "no official split: a tenth of each class, fixed by a seed, is for testing"
_KNOWN = (
    DataSet(
        "mnist",
        "MNIST",
        _idx(MNIST, MNIST_SHA256, MNIST_MD5),
        (28, 28),
        DIGITS,
        10,
        "LeCun, Cortes, Burges; CC BY-SA 3.0; a copy comes with ucb",
        train=60_000,
        test=10_000,
        packaged=True,
    ),
    DataSet(
        "fashion_mnist",
        "FashionMNIST",
        _idx(FASHION, FASHION_SHA256, FASHION_MD5),
        (28, 28),
        CLOTHES,
        10,
        "Zalando SE; MIT licence",
        train=60_000,
        test=10_000,
    ),
    _cifar(CIFAR10, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    _cifar(CIFAR100, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", "; fine labels"),
    DataSet(
        "svhn",
        "SVHN, cropped digits",
        (
            _file(
                STANFORD,
                "train_32x32.mat",
                "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            _file(
                STANFORD, "test_32x32.mat", "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"
            ),
        ),
        (32, 32, 3),
        DIGITS,
        10,
        "Netzer et al. 2011; for non-commercial use",
        train=73_257,
        test=26_032,
    ),
    DataSet(
        "notmnist",
        "NotMNIST, small",
        (
            _file(
                BULATOV,
                "notMNIST_small.tar.gz",
                "md5:c9890a473a9769fda4bdf314aaf500dd",
                _file(BULATOV, "notMNIST_large.tar.gz", "md5:70a95b805ecfb6592c48e196df7c1499"),
            ),
        ),
        (28, 28),
        LETTERS,
        10,
        f"Bulatov 2011; no licence is stated; {OWN_SPLIT}; the large set can be imported instead",
        folders=True,
    ),
    DataSet(
        "traffic_signs",
        "TrafficSigns (GTSRB)",
        (
            _file(GTSRB, "GTSRB_Final_Training_Images.zip", "md5:f33fd80ac59bff73c82d25ab499e03a3"),
            _file(GTSRB, "GTSRB_Final_Test_Images.zip", "md5:c7e4e6327067d32654124b0fe9e82185"),
            _file(GTSRB, "GTSRB_Final_Test_GT.zip", "md5:fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
        ),
        (32, 32, 3),
        TRAFFIC_SIGNS,
        43,
        "Stallkamp et al. 2012; free to use; whole images resized to 32x32",
        train=39_209,
        test=12_630,
        folders=True,
        wrong={"GTSRB-Training_fixed.zip": "is a smaller set: fetch GTSRB_Final_Training_Images.zip"},
    ),
    DataSet(
        "facescrub100",
        "FaceScrub-100",
        (),
        (32, 32, 3),
        None,
        100,
        f"Ng and Winkler 2014; from a folder with a folder of face images for each person, of whom the 100 with most "
        f"images are taken and resized to 32x32; {OWN_SPLIT}",
        folders=True,
    ),
    DataSet(
        "lfw100",
        "LFW-100",
        (
            OfficialFile(
                "lfw-funneled.tgz",
                (FIGSHARE_FUNNELED, f"{UMASS}lfw-funneled.tgz"),
                "sha256:b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a",
                (_file(UMASS, "lfw.tgz", "sha256:055f7d9c632d7370e6fb4afc7468d40f970c34a80d4c6f50ffec63f5a8d536c0"),),
            ),
        ),
        (32, 32, 3),
        None,
        100,
        f"Huang et al. 2007; for research; the 100 people with most images, the face cut out and resized to 32x32; "
        f"{OWN_SPLIT}",
        folders=True,
    ),
)
CATALOGUE: Mapping[str, DataSet] = {known.name: known for known in _KNOWN}
