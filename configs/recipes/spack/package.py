"""The Spack package of Monarch, for a repository of the site.

spack create --template python --name py-monarch-staging   # then put this file there
spack install --no-checksum py-monarch-staging
"""

# ruff: noqa: F403, F405 - each Spack package takes its names so

import os

from spack.package import *


class PyMonarchStaging(PythonPackage):
    """Stages the dataset of a deep-learning job on its nodes' own RAM and SSD."""

    homepage = "https://pypi.org/project/monarch-staging/"
    pypi = "monarch-staging/monarch_staging-0.2.0.tar.gz"

    license("Apache-2.0")
    version("0.2.0")

    depends_on("c", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@0.10:", type="build")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-pydantic@2.6:", type=("build", "run"))
    depends_on("py-pyyaml@6.0:", type=("build", "run"))
    depends_on("py-rich@13.7:", type=("build", "run"))
    depends_on("py-xxhash@3.4:", type=("build", "run"))
    depends_on("py-zstandard@0.22:", type=("build", "run"))

    @property
    def own_python(self):
        """A virtual environment with the packages of this one and no others."""
        return join_path(self.prefix, "libexec", "python")

    @run_after("install")
    def make_own_python(self):
        """The agent's Python ignores PYTHONPATH, by which Spack joins packages."""
        python = self.spec["python"]
        python.command("-m", "venv", "--without-pip", self.own_python)
        places = [
            join_path(one.prefix, python.package.purelib)
            for one in self.spec.traverse(deptype="run")
        ]
        inside = join_path(self.own_python, python.package.purelib, "spack.pth")
        with open(inside, "w") as file:
            file.writelines(f"{place}\n" for place in places if os.path.isdir(place))

    def setup_run_environment(self, env):
        """Tells the launcher, which finds no python beside it, which one to use."""
        python = join_path(self.own_python, "bin", "python3")
        env.set("MONARCH_STAGING_PYTHON", python)
