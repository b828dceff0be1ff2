//! Calls on streams that record a graph instead of running.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hetccl_runtime::gpu::{Context, Driver, Event, GraphHooks, Recording, Relaxed, Stream};

use crate::Failure;
use crate::engine::{Command, Recorded, Shared};
use crate::operation::Work;
use crate::order::Pair;

/// The recordings of a communicator.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// To join the streams of a group.
    event: Option<Event>,
    watched: Watched,
}

/// Numbers of graphs that are there and whose launches the engine hears of.
#[derive(Clone, Debug, Default)]
struct Watched(Arc<Mutex<HashSet<u64>>>);

impl Watched {
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the drivers' calls are given.
struct Watch {
    shared: Arc<Shared>,
    watched: Watched,
    graph: u64,
}

/// A graph is launched.
///
/// # Safety
/// The data of [`Recorder::watch`].
unsafe extern "C" fn launched(data: *mut c_void) {
    // SAFETY: the caller's promise; it lives until `gone` is called.
    let Watch { shared, graph, .. } = unsafe { &*data.cast::<Watch>() };
    shared.tell(Command::Launched(*graph));
}

/// A graph is no longer there.
///
/// # Safety
/// The data of [`Recorder::watch`], once.
unsafe extern "C" fn gone(data: *mut c_void) {
    // SAFETY: the caller's promise; it was leaked in `Recorder::watch`.
    let Watch { shared, watched, graph } = *unsafe { Box::from_raw(data.cast::<Watch>()) };
    watched.lock().remove(&graph);
    shared.tell(Command::Gone(graph));
}

/// What streams record, if they do: all or none of them, and the same graph.
///
/// # Errors
/// Of the driver; streams that differ.
pub(crate) fn recording(
    driver: &dyn Driver,
    context: Context,
    streams: &[usize],
) -> Result<Option<Recording>, Failure> {
    let mut found = None;
    for (index, &stream) in streams.iter().enumerate() {
        let own = driver.recording(context, Stream(stream))?;
        if index > 0 && own != found {
            return Err(Failure::usage(
                "the streams of this group do not all record the same graph, or some record none: let the group's streams \
                 wait for an event of the stream that records before the group",
            ));
        }
        found = own;
    }
    Ok(found)
}

impl Recorder {
    /// Records a call or group into the graph of its streams.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) fn record(
        &mut self,
        (driver, context): (&dyn Driver, Context),
        shared: &Arc<Shared>,
        recording: Recording,
        streams: &[usize],
        works: Vec<Work>,
    ) -> Result<(), Failure> {
        if !self.watched.lock().contains(&recording.id) {
            self.watch((driver, context), shared, recording)?;
        }
        let pair = {
            let _relaxed = Relaxed::new(driver)?;
            Pair::new(driver, context)?
        };
        let [first, others @ ..] = streams else { return Ok(()) };
        for &other in others {
            self.join((driver, context), other, *first)?;
        }
        driver.hold_in_graph(context, Stream(*first), pair.ready_address(), pair.done_address())?;
        for &other in others {
            self.join((driver, context), *first, other)?;
        }
        shared.tell(Command::Recorded(Recorded { graph: recording.id, pair, works }));
        Ok(())
    }

    /// Lets what `after` records from here on wait for what `before` has recorded.
    fn join(
        &mut self,
        (driver, context): (&dyn Driver, Context),
        before: usize,
        after: usize,
    ) -> Result<(), Failure> {
        let event = match self.event {
            Some(event) => event,
            None => *self.event.insert(driver.event(context)?),
        };
        driver.record(context, event, Stream(before))?;
        Ok(driver.wait(context, Stream(after), event)?)
    }

    /// Has the engine hear of a graph's launches and its end.
    ///
    /// # Errors
    /// Of the driver.
    fn watch(
        &self,
        (driver, context): (&dyn Driver, Context),
        shared: &Arc<Shared>,
        recording: Recording,
    ) -> Result<(), Failure> {
        let (shared, watched, graph) = (shared.clone(), self.watched.clone(), recording.id);
        // What a driver that fails has begun may still call: the memory is lost then.
        let data = Box::into_raw(Box::new(Watch { shared, watched, graph })).expose_provenance();
        driver.watch(context, recording.graph, GraphHooks { launched, gone, data })?;
        self.watched.lock().insert(graph);
        Ok(())
    }
}
