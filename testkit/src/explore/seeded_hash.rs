//! The random numbers that hash maps are keyed with, made a function of the run.
//!
//! The standard library draws the keys of a thread's maps from the C library's `getrandom`, by a weak reference that a
//! function of the program itself takes the place of; this file is that function. The maps of `ahash`, which
//! kube-runtime uses, have a source of their own that can be set. On the thread of a run both hand out numbers that
//! begin anew with the run; on all other threads they are as random as ever.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Once;

thread_local! {
    /// Count of numbers drawn in the run of this thread; `None` outside of runs.
    static DRAWN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the source of `ahash`, once a process. It has to come before the first map of `ahash`, so clusters do it, too.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let thread = std::thread::Builder::new().name("seeded hash".to_owned()).spawn(|| {
            seed_this_thread();
            // Set elsewhere: then the order of such maps is random.
            let _ = ahash::random_state::set_random_source(Source);
            // The part that all maps of the process share is drawn here.
            std::hint::black_box(ahash::RandomState::new());
        });
        // Without a thread it is left to chance, too.
        let _ = thread.map(std::thread::JoinHandle::join);
    });
}

/// The numbers of this thread begin anew, and are the same each time.
pub(crate) fn seed_this_thread() {
    DRAWN.set(Some(0));
    #[cfg(target_os = "linux")]
    linux::link();
}

/// The next number of the run; `None` outside of runs. A thread that ends may have no counter any more.
fn draw() -> Option<u64> {
    let drawn = DRAWN.try_with(Cell::get).ok()??;
    let _ = DRAWN.try_with(|it| it.set(Some(drawn.wrapping_add(1))));
    // SplitMix64
    let mut mixed = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}

/// Source of the keys of `ahash` maps.
struct Source;

impl ahash::random_state::RandomSource for Source {
    fn gen_hasher_seed(&self) -> usize {
        let seed = draw().unwrap_or_else(|| RandomState::new().hash_one(0_u8));
        // On 32 bits the upper half is not needed.
        seed as usize
    }
}

#[cfg(target_os = "linux")]
mod linux {
    #![expect(
        unsafe_code,
        reason = "the C library hands over a buffer, and the kernel is asked by its system call"
    )]

    use std::ffi::{c_uint, c_void};

    /// The C library's function, which takes the place of its own in a program that is linked with this crate.
    ///
    /// # Safety
    ///
    /// `buffer` is valid for writes of `length` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
        let mut written = 0;
        while written < length {
            let Some(number) = super::draw() else {
                // SAFETY: the system call has the same contract as this function.
                return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as isize;
            };
            for byte in number.to_le_bytes().into_iter().take(length - written) {
                // SAFETY: `written` is less than `length`, and the caller gives a buffer of that length.
                unsafe { buffer.cast::<u8>().add(written).write(byte) };
                written += 1;
            }
        }
        length as isize
    }

    /// Makes the linker take this file, and so the function above.
    pub(super) fn link() {
        let function: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> isize = getrandom;
        std::hint::black_box(function);
    }
}
