#!/bin/sh
# NCCL's own speed against hetccl's on the GPUs of one host, all in one run: collectives and training by PyTorch, and nccl-tests where
# its folder is named.
#
#     tests/hardware/two_gpus.sh FOLDER_WITH_libnccl.so.2 [--ranks N] [--rounds N] [--sizes BYTES,...] [--nccl-tests FOLDER] [--results FILE]
#
# stock: NCCL as PyTorch brings it. delegated: hetccl hands the calls to that library. own: hetccl's paths, peer copies where the
# driver has them. staged: hetccl through pinned host memory. They take turns, N rounds. FILE (results.jsonl) gets a line of JSON
# for each figure; the table at the end has medians and ratios to stock, and says what misses the aims. Ranks go to the GPUs in
# turn; with one GPU there is nothing to delegate to (stock NCCL takes one rank a GPU), and that is said. NVLink multicast stays off.
set -u
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit "$1"; }
[ $# -ge 1 ] || usage 2
case $1 in -h | --help) usage 0 ;; esac
folder=$(realpath "$1") || exit 2
[ -f "$folder/libnccl.so.2" ] || { echo "two_gpus.sh: no libnccl.so.2 in $folder; cargo xtask nccl makes one" >&2; exit 2; }
shift
ranks=2 rounds=3 sizes=8,1024,65536,1048576,8388608,67108864,1073741824,4294967296 tests= results=results.jsonl
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "two_gpus.sh: $1 needs a value" >&2; exit 2; }
    case $1 in
    --ranks) ranks=$2 ;;
    --rounds) rounds=$2 ;;
    --sizes) sizes=$2 ;;
    --nccl-tests) tests=$(realpath "$2") ;;
    --results) results=$2 ;;
    *) echo "two_gpus.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
here=$(dirname "$(realpath "$0")")
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
[ "$gpus" -gt 0 ] || { echo "SKIPPED: no NVIDIA GPU here (nvidia-smi is missing or lists none)"; exit 0; }
export NCCL_NVLS_ENABLE=0 NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
variants="stock delegated own staged"
if [ "$ranks" -gt "$gpus" ]; then
    echo "SKIPPED: delegated, for $ranks ranks on $gpus GPU(s) are not one rank a GPU"
    variants="stock own staged"
fi

# as VARIANT COMMAND...: the command with that library.
as() {
    variant=$1
    shift
    case $variant in
    stock) "$@" ;;
    delegated) LD_PRELOAD=$folder/libnccl.so.2 HETCCL_DELEGATE=1 "$@" ;;
    own) LD_PRELOAD=$folder/libnccl.so.2 HETCCL_DELEGATE=0 "$@" ;;
    staged) LD_PRELOAD=$folder/libnccl.so.2 HETCCL_DELEGATE=0 HETCCL_GPU_PATH=staging "$@" ;;
    esac
}

: >"$results"
status=0
for round in $(seq "$rounds"); do
    for variant in $variants; do
        echo "-- round $round of $rounds: $variant"
        as "$variant" timeout 600 python3 "$here/nccl.py" "$variant" "$ranks" --sizes "$sizes" --json "$results" || status=1
        HETCCL_RESULTS=$results as "$variant" timeout 300 python3 "$here/nccl_train.py" "$variant" "$ranks" ddp fsdp2 || status=1
        [ -z "$tests" ] && continue
        for program in all_reduce all_gather reduce_scatter broadcast reduce alltoall sendrecv; do
            as "$variant" timeout 300 "$tests/build/${program}_perf" -b 8 -e 4G -f 8 -g "$ranks" || status=1
        done
    done
done
python3 "$here/ratios.py" "$results" || status=1
exit $status
