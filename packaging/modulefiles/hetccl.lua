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
-- Open MPI looks nowhere else once it is given a path, so its own folder is said as well.
local own = capture("ompi_info --parsable --path pkglibdir 2>/dev/null"):match("pkglibdir:(%S+)")
if own then
    setenv("OMPI_MCA_mca_base_component_path", pathJoin(prefix, "lib/openmpi") .. ":" .. own)
    -- From Open MPI 5 on PMIx takes that path for its own unless it has one.
    setenv("PMIX_MCA_mca_base_component_path", pathJoin(prefix, "lib/pmix"))
elseif mode() == "load" then
    LmodMessage("hetccl: Open MPI is not loaded, so mpirun will not find hetccl. Load Open MPI, then hetccl again.")
end
