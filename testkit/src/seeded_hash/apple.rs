//! macOS and related systems: `CCRandomGenerateBytes`, which std calls, and `getentropy`, which the crate `getrandom`
//! calls.

#![expect(unsafe_code, reason = "functions of the system have a buffer as pointer and length")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::slice;

pub(super) const REMEDY: Option<&str> = None;

/// Replaces the system's function of this name in programs that are linked with this crate; 0 is success.
///
/// # Safety
///
/// `buffer` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn CCRandomGenerateBytes(buffer: *mut c_void, length: usize) -> c_int {
    // SAFETY: both functions have the same contract.
    unsafe { getentropy(buffer, length) }
}

/// Replaces the system's function of this name in programs that are linked with this crate; 0 is success.
///
/// # Safety
///
/// `buffer` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getentropy(buffer: *mut c_void, length: usize) -> c_int {
    // SAFETY: the caller passes a buffer of that length.
    let bytes = unsafe { slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), length) };
    if !super::fill(bytes) {
        // SAFETY: the buffer has that length. This function cannot fail, and does not call the functions above: the
        // system's libraries resolve each other's functions without the program's.
        unsafe { libc::arc4random_buf(buffer, length) };
    }
    0
}

/// Makes the linker include this file with the functions above.
pub(super) fn link() {
    let functions: [unsafe extern "C" fn(*mut c_void, usize) -> c_int; 2] = [CCRandomGenerateBytes, getentropy];
    std::hint::black_box(functions);
}
