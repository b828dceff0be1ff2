//! The environment variables that hetccl reads, in one table: documentation is made from it.

/// An environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Which part of hetccl reads it.
    pub reader: &'static str,
    /// What it does, and what holds without it.
    pub help: &'static str,
}

const fn variable(name: &'static str, reader: &'static str, help: &'static str) -> Variable {
    Variable { name, reader, help }
}

/// All of them, but for those of tests and of UCX.
pub const VARIABLES: &[Variable] = &[
    variable(
        "HETCCL_LIB",
        "hetccl run, hetccl perf",
        "The folder with hetccl's libnccl.so.2 and librccl.so.1. Without it: lib/hetccl or lib64/hetccl beside the folder \
         of the program",
    ),
    variable(
        "HETCCL_UCX_LIB",
        "everything that uses UCX",
        "The folder in which libucp.so.0 is looked for, and nowhere else. Without it: where the system's loader looks",
    ),
    variable(
        "HETCCL_DELEGATE",
        "the NCCL library",
        "0: calls are never handed on to the vendor's own library; 1: an error, with the reason, where they can't be, and ranks of \
         one GPU are handed on too if each has an NCCL_HOSTID. Without it: handed on where all ranks can",
    ),
    variable(
        "HETCCL_NCCL_LIBRARY",
        "the NCCL library",
        "The vendor's libnccl.so.2, by absolute path; hetccl run sets the one that it finds beside the framework. Without it: \
         beside the framework's own, then where the loader looks",
    ),
    variable(
        "HETCCL_RCCL_LIBRARY",
        "the NCCL library",
        "The vendor's librccl.so.1, in the same way",
    ),
    variable(
        "HETCCL_RANK_WEIGHT",
        "the NCCL library",
        "How much this rank counts in ncclAvg: sum(w x) / sum(w). Without it: 1",
    ),
    variable(
        "HETCCL_STALL_SECONDS",
        "the component",
        "The setting stall_seconds, unless that is given as an MCA parameter",
    ),
    variable(
        "HETCCL_DUMP",
        "the component",
        "A folder for journals: when a collective fails, each process writes there what it did last, for `hetccl inspect --merge`. \
         Without it: none is written",
    ),
    variable(
        "HETCCL_INIT_TIMEOUT",
        "the NCCL library",
        "Seconds, at least 1, that a rank waits for the others when a communicator is made; then the missing ranks are \
         named. Without it: 600",
    ),
    variable(
        "HETCCL_PEER_TIMEOUT",
        "the NCCL library",
        "Seconds after which a rank that does not even say that it is there (a stopped process, a broken network) has failed for the \
         others; 0: never. A process that ends has failed at once, one that computes for long never does. Without it: 60",
    ),
    variable(
        "HETCCL_HIERARCHY",
        "the NCCL library",
        "The setting hierarchy: auto, on or off, the same on all ranks. Without it: auto",
    ),
    variable(
        "HETCCL_GPU_PATH",
        "the NCCL library",
        "The setting gpu_path: auto, or staging for device buffers through pinned host memory everywhere, the same on all ranks. \
         Without it: auto",
    ),
    variable(
        "HETCCL_GROUP_LIBRARY",
        "the NCCL library",
        "What is done among the ranks of one vendor in a communicator of several, the vendor's own library does where they have a \
         GPU each (or an NCCL_HOSTID each), at least two of them. auto: where a model of the cost says that it pays; on: wherever \
         it can; off: never. The same on all ranks. Without it: auto",
    ),
    variable(
        "NCCL_COMM_ID",
        "the NCCL library",
        "HOST:PORT where rank 0 waits for the others, for programs that share no unique id. Without it: an address of rank \
         0's host and a free port",
    ),
    variable(
        "NCCL_SOCKET_IFNAME",
        "the NCCL library",
        "Network interfaces: prefixes separated by commas; =name: exactly that one; ^prefix: not those. Without it: all \
         that are up, but for docker's, and the loopback one last",
    ),
    variable(
        "NCCL_SOCKET_FAMILY",
        "the NCCL library",
        "AF_INET or AF_INET6: addresses of that family only. Without it: both",
    ),
    variable(
        "NCCL_DEBUG",
        "the NCCL library",
        "What the NCCL library tells on stderr. VERSION: its version; WARN: also errors; INFO: also which ways were taken. \
         Without it: nothing",
    ),
    variable(
        "NCCL_DEBUG_FILE",
        "the NCCL library",
        "The file for what NCCL_DEBUG asks for; %h stands for the host, %p for the process. Without it: stderr",
    ),
    variable(
        "NCCL_HOSTID",
        "the NCCL library",
        "What tells hosts apart: ranks with the same one share memory. Without it: the system's own id",
    ),
    variable(
        "NCCL_COMM_BLOCKING",
        "the NCCL library",
        "0: calls that make communicators return at once; 1: they wait. Without it: what the program's configuration says",
    ),
    variable(
        "NCCL_CONF_FILE",
        "the NCCL library",
        "A file with lines NAME=VALUE for NCCL_ variables that the environment does not have. Without it: ~/.nccl.conf, then \
         /etc/nccl.conf",
    ),
];
