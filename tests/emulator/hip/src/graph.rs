//! Stream capture, graphs, and what is kept with them.

use std::ffi::c_void;
use std::sync::Arc;

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::graph::{self, Executable, Graph, Mode, UserObject};
use hetccl_emulated_device::{Code, entries};

use crate::stream;

static GRAPHS: Table<Graph> = Table::new(11);
static EXECUTABLES: Table<Executable> = Table::new(12);
static OBJECTS: Table<UserObject> = Table::new(13);

const ACTIVE: i32 = 1;
const INVALIDATED: i32 = 2;
/// `hipGraphUserObjectMove`.
const MOVE: u32 = 1;
/// `hipUserObjectNoDestructorSync`.
const NO_DESTRUCTOR_SYNC: u32 = 1;

/// `hipHostFn_t`.
type HostFunction = extern "C" fn(*mut c_void);

/// `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostNode {
    function: Option<HostFunction>,
    data: usize,
}

entries! {
    fn hipStreamBeginCapture = hipStreamBeginCapture_spt(stream: usize, mode: i32) {
        if stream <= 1 {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        graph::begin(&stream::get(stream)?, Mode::from_number(mode)?).map(drop)
    }

    fn hipStreamEndCapture = hipStreamEndCapture_spt(stream: usize, graph: Out<usize>) {
        graph.set(0)?;
        let recorded = graph::end(&stream::get(stream)?)?;
        graph.set(handle(&recorded))
    }

    fn hipStreamIsCapturing = hipStreamIsCapturing_spt(stream: usize, status: Out<i32>) {
        status.set(status_of(stream)?)
    }

    fn hipStreamGetCaptureInfo_v2 = hipStreamGetCaptureInfo_v2_spt(
        stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, _count: Out<usize>
    ) {
        if !nodes.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        status.set(status_of(stream)?)?;
        if let Some(recording) = graph::of(&*stream::get(stream)?) {
            id.set_if_wanted(recording.id());
            graph.set_if_wanted(handle(recording.graph()));
        }
        Ok(())
    }

    fn hipThreadExchangeStreamCaptureMode(mode: Out<i32>) {
        let wanted = Mode::from_number(mode.get()?)?;
        mode.set(graph::exchange_mode(wanted) as i32)
    }

    fn hipGraphAddHostNode(
        node: Out<usize>, graph: usize, _after: In<usize>, count: usize, parameters: In<HostNode>
    ) {
        let HostNode { function, data } = parameters.get()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        if count > 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        GRAPHS.get(graph)?.add_root(move || function(data as *mut c_void));
        node.set(1)
    }

    fn hipGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, _flags: u64) {
        executable.check()?;
        executable.set(EXECUTABLES.insert(GRAPHS.get(graph)?.instantiate()))
    }

    fn hipGraphLaunch = hipGraphLaunch_spt(executable: usize, stream: usize) {
        EXECUTABLES.get(executable)?.launch(&stream::get(stream)?)
    }

    fn hipGraphExecDestroy(executable: usize) {
        EXECUTABLES.remove(executable).map(drop)
    }

    fn hipGraphDestroy(graph: usize) {
        GRAPHS.remove(graph).map(drop)
    }

    fn hipUserObjectCreate(
        object: Out<usize>, data: usize, destroy: Option<HostFunction>, count: u32, flags: u32
    ) {
        object.check()?;
        let destroy = destroy.ok_or(Code::INVALID_VALUE)?;
        if count != 1 || flags != NO_DESTRUCTOR_SYNC {
            return Err(Code::INVALID_VALUE);
        }
        let end = move || destroy(data as *mut c_void);
        object.set(OBJECTS.insert(UserObject::new(end)))
    }

    fn hipUserObjectRelease(object: usize, _count: u32) {
        OBJECTS.remove(object).map(drop)
    }

    fn hipGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) {
        let graph = GRAPHS.get(graph)?;
        if count != 1 {
            return Err(Code::INVALID_VALUE);
        }
        let kept = if flags & MOVE != 0 { OBJECTS.remove(object)? } else { OBJECTS.get(object)? };
        graph.keep(kept);
        Ok(())
    }
}

fn status_of(stream: usize) -> Result<i32, Code> {
    Ok(match graph::of(&*stream::get(stream)?) {
        None => 0,
        Some(recording) if recording.is_valid() => ACTIVE,
        Some(_) => INVALIDATED,
    })
}

/// The handle of a graph, which it has from the first question on.
fn handle(graph: &Arc<Graph>) -> usize {
    GRAPHS.handle_of(graph).unwrap_or_else(|| GRAPHS.insert(graph.clone()))
}
