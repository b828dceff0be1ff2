//! Symbolic execution of the schedules of all ranks.
