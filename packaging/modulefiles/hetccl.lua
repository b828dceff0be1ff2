-- Lmod: module use PREFIX/share/hetccl/modulefiles; module load hetccl
help([[hetccl: collective communication across GPU vendors.
  mpirun --mca coll hetccl ./app      MPI programs
  hetccl run torchrun train.py        programs that use NCCL or RCCL
  hetccl doctor                       what this host can do, and why not more]])
whatis("Description: collective communication across GPU vendors")

-- This file is PREFIX/share/hetccl/modulefiles/hetccl.lua.
local prefix = myFileName():gsub("/share/hetccl/modulefiles/[^/]*$", "")
setenv("HETCCL_PREFIX", prefix)
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man") .. ":")
-- Open MPI looks nowhere else once it is given a path, so its own folder is said as well. It is kept for unloading, when another
-- Open MPI may be loaded or none.
local own = os.getenv("HETCCL_OPEN_MPI_COMPONENTS")
if mode() == "load" then
    own = capture("ompi_info --parsable --path pkglibdir 2>/dev/null"):match("pkglibdir:(%S+)")
end
if own then
    setenv("HETCCL_OPEN_MPI_COMPONENTS", own)
    append_path("OMPI_MCA_mca_base_component_path", own)
    prepend_path("OMPI_MCA_mca_base_component_path", pathJoin(prefix, "lib/openmpi"))
    -- From Open MPI 5 on PMIx takes that path for its own unless it has one.
    setenv("PMIX_MCA_mca_base_component_path", pathJoin(prefix, "lib/pmix"))
elseif mode() == "load" then
    LmodMessage("hetccl: Open MPI is not loaded, so mpirun will not find hetccl. Load Open MPI, then hetccl again.")
end
