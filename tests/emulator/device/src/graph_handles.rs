//! The handles of graphs and of what is kept with them: CUDA's and HIP's calls for them differ in their names only.

use std::ffi::c_void;
use std::sync::Arc;

use crate::Code;
use crate::abi::{In, Out, Table};
use crate::graph::{self, Executable, Graph, Mode, UserObject};
use crate::stream::Stream;

const ACTIVE: i32 = 1;
const INVALIDATED: i32 = 2;
/// `CU_GRAPH_USER_OBJECT_MOVE`, `hipGraphUserObjectMove`.
const MOVE: u32 = 1;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, `hipUserObjectNoDestructorSync`.
const NO_DESTRUCTOR_SYNC: u32 = 1;

/// `CUhostFn`, `hipHostFn_t`.
pub type HostFunction = extern "C" fn(*mut c_void);

/// `CUDA_HOST_NODE_PARAMS`, `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostNode {
    function: Option<HostFunction>,
    data: usize,
}

/// A driver's handles.
#[derive(Debug)]
pub struct Handles {
    graphs: Table<Graph>,
    executables: Table<Executable>,
    objects: Table<UserObject>,
    /// Calls a function of the program.
    call: fn(HostFunction, usize),
}

impl Handles {
    /// None yet. `call` calls a function of the program with its data, as the driver does.
    pub const fn new(call: fn(HostFunction, usize)) -> Handles {
        Handles {
            graphs: Table::new(11),
            executables: Table::new(12),
            objects: Table::new(13),
            call,
        }
    }

    /// Ends a stream's recording.
    pub fn end(&self, stream: &Arc<Stream>) -> Result<usize, Code> {
        graph::end(stream).map(|recorded| self.handle(&recorded))
    }

    /// What a stream records, where it does.
    pub fn tell(
        &self,
        stream: &Stream,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<usize>,
    ) -> Result<(), Code> {
        status.set(status_of(stream))?;
        if let Some(recording) = graph::of(stream) {
            id.set_if_wanted(recording.id());
            graph.set_if_wanted(self.handle(recording.graph()));
        }
        Ok(())
    }

    /// Adds a function of the program, which nothing comes before.
    pub fn add_host_node(
        &self,
        node: Out<usize>,
        graph: usize,
        count: usize,
        parameters: In<HostNode>,
    ) -> Result<(), Code> {
        let HostNode { function, data } = parameters.get()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        if count > 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let call = self.call;
        self.graphs.get(graph)?.add_root(move || call(function, data));
        node.set(1)
    }

    /// Makes a graph that can be launched.
    pub fn instantiate(&self, executable: Out<usize>, graph: usize) -> Result<(), Code> {
        executable.check()?;
        executable.set(self.executables.insert(self.graphs.get(graph)?.instantiate()))
    }

    /// The graph that can be launched.
    pub fn executable(&self, executable: usize) -> Result<Arc<Executable>, Code> {
        self.executables.get(executable)
    }

    /// Forgets a graph that can be launched.
    pub fn destroy_executable(&self, executable: usize) -> Result<(), Code> {
        self.executables.remove(executable).map(drop)
    }

    /// Forgets a graph.
    pub fn destroy(&self, graph: usize) -> Result<(), Code> {
        self.graphs.remove(graph).map(drop)
    }

    /// Makes an object that calls a function of the program at its end.
    pub fn create_object(
        &self,
        object: Out<usize>,
        data: usize,
        destroy: Option<HostFunction>,
        count: u32,
        flags: u32,
    ) -> Result<(), Code> {
        object.check()?;
        let destroy = destroy.ok_or(Code::INVALID_VALUE)?;
        if count != 1 || flags != NO_DESTRUCTOR_SYNC {
            return Err(Code::INVALID_VALUE);
        }
        let call = self.call;
        object.set(self.objects.insert(UserObject::new(move || call(destroy, data))))
    }

    /// Forgets an object.
    pub fn release_object(&self, object: usize) -> Result<(), Code> {
        self.objects.remove(object).map(drop)
    }

    /// Keeps an object as long as a graph.
    pub fn retain_object(
        &self,
        graph: usize,
        object: usize,
        count: u32,
        flags: u32,
    ) -> Result<(), Code> {
        let graph = self.graphs.get(graph)?;
        if count != 1 {
            return Err(Code::INVALID_VALUE);
        }
        let moved = flags & MOVE != 0;
        graph.keep(if moved { self.objects.remove(object)? } else { self.objects.get(object)? });
        Ok(())
    }

    /// The handle of a graph, which it has from the first question on.
    fn handle(&self, graph: &Arc<Graph>) -> usize {
        self.graphs.handle_of(graph).unwrap_or_else(|| self.graphs.insert(graph.clone()))
    }
}

/// Whether a stream records.
pub fn status_of(stream: &Stream) -> i32 {
    match graph::of(stream) {
        None => 0,
        Some(recording) if recording.is_valid() => ACTIVE,
        Some(_) => INVALIDATED,
    }
}

/// Gives the thread a mode, and answers with the one that it had.
pub fn exchange_mode(mode: Out<i32>) -> Result<(), Code> {
    let wanted = Mode::from_number(mode.get()?)?;
    mode.set(graph::exchange_mode(wanted) as i32)
}
