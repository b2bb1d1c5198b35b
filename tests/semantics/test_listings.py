"""Promises on listings and missing names, in the words of the page on semantics."""

from collections.abc import Callable

Under = Callable[..., None]


def test_listing(settled: Under) -> None:
    """a listing of a directory gives the names, inode numbers and types that the
    origin gives
    """
    settled("""
code = "import os; print([(e.name, e.inode(), e.is_dir(follow_symlinks=False),"
code += "e.is_symlink()) for e in os.scandir(os.sys.argv[1])])"
before = plain(sys.executable, "-c", code, D + "/sub")
assert before == subprocess.check_output([sys.executable, "-c", code, D + "/sub"])
come("new")
assert before == subprocess.check_output([sys.executable, "-c", code, D + "/sub"])
""")


def test_missing_name(settled: Under) -> None:
    """a missing name is denied without asking the origin"""
    settled("""
assert not there("new")
come("new")
assert not there("new")
soon(lambda: there("new"))
""")
