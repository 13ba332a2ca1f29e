//! Linux: `getrandom` of the C library, which std and the crate `getrandom` refer to weakly.

#![expect(
    unsafe_code,
    reason = "a function of the C library has a buffer as pointer and length"
)]

use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::slice;

pub(super) const REMEDY: Option<&str> = None;

/// Replaces the C library's function of this name in programs that are linked with this crate.
///
/// # Safety
///
/// `buffer` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    // SAFETY: the caller passes a buffer of that length.
    let bytes = unsafe { slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), length) };
    if super::fill(bytes) {
        return length as isize;
    }
    // SAFETY: the system call has the same contract as this function.
    unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as isize }
}

/// Makes the linker include this file with the function above.
pub(super) fn link() {
    let function: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> isize = getrandom;
    std::hint::black_box(function);
}
