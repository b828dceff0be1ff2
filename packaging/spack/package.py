"""Spack recipe. Copy to REPO/packages/hetccl/package.py of a Spack repository. Not yet tried with Spack."""

from spack.package import *


class Hetccl(Package):
    """Collective communication across GPU vendors: a component of Open MPI, and the interface of NCCL and RCCL."""

    homepage = "https://github.com/hetccl/hetccl"
    git = "https://github.com/hetccl/hetccl.git"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("llvm+clang", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openmpi@4.1", type=("build", "link", "run"))
    depends_on("ucx@1.13:", type=("build", "link", "run"))

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "install", "--prefix", prefix)

    def setup_run_environment(self, env):
        own = join_path(self.spec["openmpi"].prefix.lib, "openmpi")
        env.set("OMPI_MCA_mca_base_component_path", self.prefix.lib.openmpi + ":" + own)
