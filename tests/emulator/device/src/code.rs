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
    INVALID_HANDLE = 400, "Not a handle of this kind.";
    NOT_FOUND = 500, "A name that nothing has.";
    NOT_READY = 600, "Work is not finished.";
    PEER_ACCESS_ALREADY_ENABLED = 704, "Peer access was enabled before.";
    PEER_ACCESS_NOT_ENABLED = 705, "Peer access was not enabled.";
    PRIMARY_CONTEXT_ACTIVE = 708, "The primary context is in use.";
    CONTEXT_IS_DESTROYED = 709, "The current context was destroyed.";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "Host memory that is registered.";
    HOST_MEMORY_NOT_REGISTERED = 713, "Host memory that is not registered.";
    NOT_PERMITTED = 800, "A call that a host function may not make.";
    NOT_SUPPORTED = 801, "The emulator does not have it.";
    UNKNOWN = 999, "Anything else.";
}
