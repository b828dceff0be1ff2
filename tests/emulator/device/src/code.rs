//! Error codes. CUDA and HIP give the same numbers to the errors that an emulator has.

/// A driver's error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal, $doc:literal;)*) => {
        impl Code {
            $(#[doc = $doc] pub const $name: Code = Code($number);)*
        }
    };
}

codes! {
    INVALID_VALUE = 1, "An argument is not one that the function takes.";
    OUT_OF_MEMORY = 2, "The device's memory is used up.";
    NOT_INITIALIZED = 3, "The driver was not initialised.";
    INVALID_CONFIGURATION = 9, "HIP: an object without the flags that a call needs.";
    INVALID_DEVICE_POINTER = 17, "HIP: not a pointer to device memory.";
    NO_DEVICE = 100, "There is no device.";
    INVALID_DEVICE = 101, "No device has this number.";
    INVALID_IMAGE = 200, "A module image that cannot be loaded.";
    INVALID_CONTEXT = 201, "No context is current, or the call cannot be made in it.";
    MAP_FAILED = 205, "Memory could not be mapped.";
    FILE_NOT_FOUND = 301, "No such file.";
    OPERATING_SYSTEM = 304, "A system call failed.";
    ILLEGAL_STATE = 401, "A call that does not fit what the object is doing.";
    INVALID_HANDLE = 400, "Not a handle of this kind.";
    NOT_FOUND = 500, "A name that nothing has.";
    NOT_READY = 600, "Work is not finished.";
    PEER_ACCESS_ALREADY_ENABLED = 704, "Peer access was enabled before.";
    PEER_ACCESS_NOT_ENABLED = 705, "Peer access was not enabled.";
    PRIMARY_CONTEXT_ACTIVE = 708, "The primary context is in use.";
    CONTEXT_IS_DESTROYED = 709, "The current context was destroyed.";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "Host memory that is registered.";
    HOST_MEMORY_NOT_REGISTERED = 713, "Host memory that is not registered.";
    STREAM_CAPTURE_UNSUPPORTED = 900, "A call that may not be made while a stream records a graph.";
    STREAM_CAPTURE_INVALIDATED = 901, "The recording was spoilt by an earlier error.";
    STREAM_CAPTURE_MERGE = 902, "A wait would merge two recordings.";
    STREAM_CAPTURE_UNMATCHED = 903, "The recording was not begun on this stream.";
    STREAM_CAPTURE_UNJOINED = 904, "The recording has work that the stream it began on does not wait for.";
    STREAM_CAPTURE_ISOLATION = 905, "The recording would depend on work outside of it.";
    STREAM_CAPTURE_IMPLICIT = 906, "The null stream would depend on a stream that records.";
    CAPTURED_EVENT = 907, "The event was last recorded into a graph.";
    STREAM_CAPTURE_WRONG_THREAD = 908, "The recording was begun by another thread.";
    NOT_PERMITTED = 800, "A call that a host function may not make.";
    NOT_SUPPORTED = 801, "The emulator does not have it.";
    UNKNOWN = 999, "Anything else.";
}
