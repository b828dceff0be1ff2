#!/bin/sh
# PyTorch's collectives on ranks of one GPU: hetccl's libnccl.so.2 beside the one that PyTorch brings, in one run.
#
#     tests/hardware/nccl_h200.sh FOLDER_WITH_libnccl.so.2 [RANKS]
#
# FOLDER is what `cargo xtask nccl` made. Needs Python with PyTorch, nothing else.
set -u
library=$(realpath "$1")/libnccl.so.2
ranks=${2:-2}
here=$(dirname "$(realpath "$0")")
status=0
echo "hetccl: $library"
LD_PRELOAD=$library NCCL_DEBUG=${NCCL_DEBUG:-WARN} timeout 240 python3 "$here/nccl.py" hetccl "$ranks" || status=1
timeout 240 python3 "$here/nccl.py" stock "$ranks" || echo "stock NCCL failed"
exit $status
