"""The tree of one sequence: two roots, and files beside them."""

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

FILES = ("f0", "f1", "f2", "f3", "big", "empty", "a/f0", "a/f1", "b/f0", "b/f1")
DEEP = ("a/deep/f0", "log", "../other/g0", "../other/g1")
# A link, its first target, and other targets of the same kind.
LINKS = {
    "latest": ("f0", "f1", "a/f1", "big"),
    "hop": ("latest", "abs", "f2"),
    "hop2": ("hop", "latest", "thru"),
    "via": ("cur/f0", "cur/f1", "outd/f1"),
    "abs": ("{main}/f3", "{main}/f2", "{main}/a/f0"),
    "thru": ("ex/mid", "f1", "ex/mid2"),
    "thrud": ("ex/dir/f1", "ex/dir/f0", "b/f0"),
    "out": ("../out/back", "../out/hard", "f2"),
    "cur": ("a", "b", "a/deep"),
    "exd": ("ex/dir", "b", "a"),
    "outd": ("../out/dir", "a", "{main}/a"),
    "toother": ("../other/g0", "../other/g1", "{other}/g1"),
    "../other/into": ("../main/f0", "../main/f1", "g0"),
    "ex/mid": ("../f1", "../f0", "../a/f1"),
    "ex/mid2": ("../f2", "../f3", "../b/f1"),
    "ex/dir": ("../a", "../b", "../a/deep"),
    "../out/back": ("../main/f2", "../main/f3", "../other/g0"),
    "../out/dir": ("../main/b", "../main/a", "../other"),
    # Outside the dataset, on its file system and on another one.
    "leave": ("../far/g0", "../far/hop", "../far/sub/h0", "f1"),
    "leave2": ("../far/hop", "../far/g0", "leave"),
    "leaved": ("../far", "../far/sub", "a"),
    "leaved2": ("../far/subd", "../far/sub", "../far"),
    "abroad": ("../abroad/s0", "{abroad}/d/s1", "../far/g0"),
    "abroadd": ("{abroad}/d", "../abroad/d", "../far/sub", "b"),
    "a/leave": ("../../far/sub/h0", "{main}/../far/g0", "f0"),
    "../far/hop": ("sub/h0", "g0", "../main/f2", "{abroad}/s0"),
    "../far/subd": ("sub", "../main/b", "{abroad}/d"),
    "../far/back": ("../main/f3", "../main/latest", "g0"),
    "../far/sub/on": ("{abroad}/s0", "../../other/g0", "h0"),
}
FOLDER_LINKS = (
    *("cur", "exd", "outd", "ex/dir", "../out/dir"),
    *("leaved", "leaved2", "abroadd", "../far/subd"),
)
HARD = {
    "hard": "f1",
    "a/hard": "f2",
    "../out/hard": "f3",
    "../other/across": "a/f1",
    "b/both": "../other/g1",
}
FAR = ("../far/g0", "../far/g1", "../far/sub/h0", "../far/sub/h1")
ABROAD = ("../abroad/s0", "../abroad/d/s1")
NEW = ("new0", "a/new0", "../out/new0", "../other/new0", "../far/new0", "leaved/new0")
FOLDERS = (
    *("a", "b", "a/deep", "ex", "newdir", "a/newdir"),
    *("../far", "../far/sub", "../abroad/d"),
)
# Names that pass links to directories.
THROUGH = (
    *("cur/f0", "cur/f1", "exd/f0", "ex/dir/f1", "outd/f0", "outd/both"),
    *("leaved/g0", "leaved/g1", "leaved/sub/h0", "leaved/hop", "leaved/sub/on"),
    *("leaved2/h0", "leaved2/on", "leaved/back", "abroadd/s1"),
)
PLACES = ("../out/cover/f0", "../out/cover/f1", "../out/cover")
ALL = (
    *(*FILES, *DEEP, *LINKS, *HARD, *NEW, *FOLDERS, *THROUGH, *PLACES),
    *(*FAR, *ABROAD),
)
CATALOGUED = (*FILES, *DEEP, *HARD, *FAR, *ABROAD)
SIZES = (0, 1, 500, 3000, 4096, 8192, 12288)


@dataclass(frozen=True, slots=True)
class Ground:
    """Where one sequence plays."""

    base: Path

    @property
    def main(self) -> Path:
        """The first root."""
        return self.base / "main"

    @property
    def other(self) -> Path:
        """The second root."""
        return self.base / "other"

    @property
    def roots(self) -> tuple[Path, Path]:
        """Both roots."""
        return self.main, self.other

    def fill(self, target: str) -> str:
        """The target of a link, made absolute where it asks for that."""
        return target.format(main=self.main, other=self.other, abroad=self.abroad)

    @property
    def abroad(self) -> Path:
        """A directory on another file system."""
        return Path("/dev/shm") / f"adversary{str(self.base).replace('/', '-')}"

    def make(self, seed: int) -> None:
        """Makes everything anew; the same seed gives the same bytes."""
        clear(self.base)
        content = random.Random(seed)
        clear(self.abroad)
        for name in (
            "main/a/deep",
            "main/b",
            "main/ex",
            "other",
            "out/cover",
            "far/sub",
        ):
            os.makedirs(self.base / name)
        os.makedirs(self.abroad / "d")
        os.symlink(self.abroad, self.base / "abroad")
        covered = ("../out/cover/f0", "../out/cover/f1")
        for name in (*FILES, *DEEP, *covered, *FAR, *ABROAD):
            size = 4096 if name == "big" else content.choice(SIZES)
            size = 0 if name == "empty" else size
            self._file(self.main / name, content.randbytes(size), content)
        for name, target in HARD.items():
            os.link(self.main / target, self.main / name)
        for name, targets in LINKS.items():
            os.symlink(self.fill(targets[0]), self.main / name)
        os.symlink("main", self.base / "alias")

    def _file(self, path: Path, content: bytes, choose: random.Random) -> None:
        path.write_bytes(content)
        os.utime(path, (1_400_000_000, choose.randrange(1_500_000_000)))


def clear(base: Path) -> None:
    """Removes a tree, whatever modes its directories have been given."""
    for folder, below, _ in os.walk(base):
        for name in below:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o700)
    shutil.rmtree(base, ignore_errors=True)


def clear_abroad(folder: Path) -> None:
    """Removes what lies on another file system, of all places in a folder."""
    for path in Path("/dev/shm").glob(f"{Ground(folder).abroad.name}*"):
        clear(path)


def grounds(folder: Path, count: int) -> list[Ground]:
    """Places for so many sequences."""
    return [Ground(folder / f"s{number}") for number in range(count)]
