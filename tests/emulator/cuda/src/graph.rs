//! Stream capture, graphs, and what is kept with them.

use std::ffi::c_void;

use hetccl_emulated_device::abi::{In, Out};
use hetccl_emulated_device::graph::{self, Mode};
use hetccl_emulated_device::graph_handles::{self, Handles, HostFunction, HostNode};
use hetccl_emulated_device::{Code, entries};

use crate::entry::in_host_function;
use crate::stream;

static HANDLES: Handles =
    Handles::new(|function, data| in_host_function(|| function(data as *mut c_void)));

entries! {
    fn cuStreamBeginCapture_v2 = cuStreamBeginCapture_v2_ptsz(stream: usize, mode: i32) {
        if stream <= 1 {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        graph::begin(&stream::get(stream)?, Mode::from_number(mode)?).map(drop)
    }

    fn cuStreamEndCapture = cuStreamEndCapture_ptsz(stream: usize, graph: Out<usize>) {
        graph.set(0)?;
        graph.set(HANDLES.end(&stream::get(stream)?)?)
    }

    fn cuStreamIsCapturing = cuStreamIsCapturing_ptsz(stream: usize, status: Out<i32>) {
        status.set(graph_handles::status_of(&*stream::get(stream)?))
    }

    fn cuStreamGetCaptureInfo_v2 = cuStreamGetCaptureInfo_v2_ptsz(
        stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, _count: Out<usize>
    ) {
        if !nodes.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        HANDLES.tell(&*stream::get(stream)?, status, id, graph)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) {
        graph_handles::exchange_mode(mode)
    }

    fn cuGraphAddHostNode(
        node: Out<usize>, graph: usize, _after: In<usize>, count: usize, parameters: In<HostNode>
    ) {
        HANDLES.add_host_node(node, graph, count, parameters)
    }

    fn cuGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, _flags: u64) {
        HANDLES.instantiate(executable, graph)
    }

    fn cuGraphLaunch = cuGraphLaunch_ptsz(executable: usize, stream: usize) {
        HANDLES.executable(executable)?.launch(&stream::get_for_work(stream)?)
    }

    fn cuGraphExecDestroy(executable: usize) {
        HANDLES.destroy_executable(executable)
    }

    fn cuGraphDestroy(graph: usize) {
        HANDLES.destroy(graph)
    }

    fn cuUserObjectCreate(
        object: Out<usize>, data: usize, destroy: Option<HostFunction>, count: u32, flags: u32
    ) {
        HANDLES.create_object(object, data, destroy, count, flags)
    }

    fn cuUserObjectRelease(object: usize, _count: u32) {
        HANDLES.release_object(object)
    }

    fn cuGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) {
        HANDLES.retain_object(graph, object, count, flags)
    }
}
