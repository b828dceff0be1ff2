#!/bin/bash
# tests/modules.sh PREFIX PROGRAM: hetccl's module files under Lmod and under Environment Modules: loaded, an MPI program run with
# hetccl alone, unloaded with nothing left; a path of the user's own kept; no Open MPI at hand said.
# As root in a Debian that may be changed: the two exclude each other, so it installs one after the other.
set -eu
prefix=$1 program=$2

failed() {
    echo "modules: $tool: $1" >&2
    exit 1
}

# Variables that a loaded hetccl has set. Lmod counts in variables of its own, which it keeps.
left() {
    env | grep -E '^(HETCCL_PREFIX|HETCCL_OPEN_MPI_COMPONENTS|OMPI_MCA_mca_base|PMIX_MCA_mca_base)' || true
}

use() {
    export MODULEPATH=$prefix/share/hetccl/modulefiles
    module load hetccl
    mpirun --oversubscribe --mca coll hetccl -n 2 "$program" >"$said" 2>&1 || failed "$(cat "$said")"
    grep -q '"ok": true' "$said" || failed "no result: $(cat "$said")"
    ! grep -q '"ok": false' "$said" || failed "a wrong result: $(cat "$said")"
    # PMIx complains of components that are not its own.
    ! grep -qi pmix "$said" || failed "PMIx says: $(grep -i pmix "$said" | head -3)"
    hetccl --version >"$said"
    module unload hetccl
    [ -z "$(left)" ] || failed "left after unloading: $(left)"

    export OMPI_MCA_mca_base_component_path=/of/the/user
    module load hetccl
    [[ $OMPI_MCA_mca_base_component_path == "$prefix"/lib/openmpi:/of/the/user:* ]] ||
        failed "the user's path became $OMPI_MCA_mca_base_component_path"
    module unload hetccl
    [ "$(left)" = OMPI_MCA_mca_base_component_path=/of/the/user ] || failed "left of the user's path: $(left)"
    unset OMPI_MCA_mca_base_component_path

    # An Open MPI that is not there.
    mkdir -p "$folder/bin"
    ompi_info=$folder/bin/ompi_info
    printf '#!/bin/sh\nexit 127\n' >"$ompi_info"
    chmod +x "$ompi_info"
    PATH=$folder/bin:$PATH module load hetccl 2>"$said" || true
    grep -q 'Open MPI is not loaded' "$said" || failed "without Open MPI it says: $(cat "$said")"
    module unload hetccl
    [ -z "$(left)" ] || failed "left after unloading without Open MPI: $(left)"
    rm "$ompi_info"
}

folder=$(mktemp -d)
said=$folder/said
trap 'rm -r "$folder"' EXIT
export DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for tool in lmod environment-modules; do
    apt-get -q install -y --no-install-recommends "$tool" >"$said" 2>&1 || failed "$(cat "$said")"
    case $tool in
        lmod) start=/usr/share/lmod/lmod/init/bash ;;
        environment-modules) start=/usr/share/modules/init/bash ;;
    esac
    # shellcheck source=/dev/null  # Their own start-up scripts read variables that may not be set.
    (set +u; . "$start"; use)
    apt-get -q purge -y "$tool" >"$said" 2>&1 || failed "$(cat "$said")"
    echo "modules: $tool: all right"
done
