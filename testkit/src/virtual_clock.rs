//! Makes the machine's clocks return virtual time to controllers in a run.
//!
//! The standard library reads the time with the C library's function `clock_gettime`. This file defines a function with
//! the same name, which replaces it. On the thread of a run, it returns the time of the run's server; on all other
//! threads, it calls the C library's function. As a result, caches expire in virtual time, and `Utc::now()` agrees with
//! the server. This works on Linux, for Rust code that is linked into the test.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

thread_local! {
    /// The clocks of the run on this thread; `None` outside of runs.
    static CLOCKS: Cell<Option<Clocks>> = const { Cell::new(None) };
}

/// The times at which a run began.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "the clocks of other systems are real")
)]
struct Clocks {
    began: Instant,
    /// Time of the server since 1970.
    time_of_day: Duration,
    /// Time of the machine's monotonic clock.
    monotonic: Duration,
}

/// Guard that keeps the clocks of the thread virtual until it is dropped.
#[derive(Debug)]
pub(crate) struct Virtual;

impl Drop for Virtual {
    fn drop(&mut self) {
        CLOCKS.set(None);
    }
}

/// Makes the clocks of this thread virtual from now on, starting at `time_of_day`.
pub(crate) fn start(time_of_day: jiff::Timestamp) -> Virtual {
    #[cfg(target_os = "linux")]
    CLOCKS.set(Some(Clocks {
        began: Instant::now(),
        time_of_day: Duration::try_from(time_of_day.as_duration()).unwrap_or_default(),
        monotonic: linux::monotonic(),
    }));
    let _ = time_of_day;
    Virtual
}

/// Returns `true` if clocks can be virtual on this system and the test does not use the machine's clock.
pub(crate) const fn is_available(has_machine_clock: bool) -> bool {
    cfg!(target_os = "linux") && !has_machine_clock
}

/// Calls `read` while the clocks of this thread are real.
pub(crate) fn of_the_machine<T>(read: impl FnOnce() -> T) -> T {
    let clocks = CLOCKS.take();
    let time = read();
    CLOCKS.set(clocks);
    time
}

/// Returns the start times of the run's clocks and the virtual time since then; `None` outside of runs.
#[cfg(target_os = "linux")]
fn clocks() -> Option<(Clocks, Duration)> {
    // The cell is temporarily empty, because reading tokio's clock may call this function again.
    let clocks = CLOCKS.try_with(Cell::take).ok()??;
    let elapsed = clocks.began.elapsed();
    CLOCKS.set(Some(clocks));
    Some((clocks, elapsed))
}

#[cfg(target_os = "linux")]
mod linux {
    #![expect(unsafe_code, reason = "functions of the C library have pointers as arguments")]

    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::time::Duration;
    use std::{mem, ptr};

    use libc::{c_int, c_void, clockid_t, timespec};

    type Read = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

    /// The C library's function, looked up once; a dangling pointer if the library does not have it.
    static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

    /// Replaces the C library's function of this name in programs that are linked with this crate.
    ///
    /// # Safety
    ///
    /// `time` is valid for a write, or null.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
        let virtual_time = match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => {
                super::clocks().map(|(clocks, elapsed)| clocks.time_of_day + elapsed)
            }
            libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => {
                super::clocks().map(|(clocks, elapsed)| clocks.monotonic + elapsed)
            }
            _ => None,
        };
        match virtual_time.filter(|_| !time.is_null()) {
            Some(now) => {
                // SAFETY: all bit patterns of a `timespec` are valid, and the caller provides memory for one.
                let mut written: timespec = unsafe { mem::zeroed() };
                written.tv_sec = now.as_secs() as _;
                written.tv_nsec = now.subsec_nanos() as _;
                // SAFETY: see above.
                unsafe { time.write(written) };
                0
            }
            // SAFETY: the function has the same contract as this one.
            None => unsafe { original(clock, time) },
        }
    }

    /// Calls the C library, or the kernel if the library does not have the function (as in a static program).
    ///
    /// # Safety
    ///
    /// See `clock_gettime`.
    unsafe fn original(clock: clockid_t, time: *mut timespec) -> c_int {
        let mut found = ORIGINAL.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name is a C string.
            let function = unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) };
            found = if function.is_null() {
                ptr::dangling_mut()
            } else {
                function
            };
            ORIGINAL.store(found, Ordering::Relaxed);
        }
        if found == ptr::dangling_mut() {
            // SAFETY: the system call has the same contract as this function.
            return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
        }
        // SAFETY: the C library's function of this name has this type.
        let function = unsafe { mem::transmute::<*mut c_void, Read>(found) };
        // SAFETY: the caller upholds the contract, which both functions share.
        unsafe { function(clock, time) }
    }

    /// Returns the time of the monotonic clock. Because this function is called, the linker includes this module,
    /// and thus the replacement for `clock_gettime`.
    pub(super) fn monotonic() -> Duration {
        let function: Read = clock_gettime;
        // SAFETY: all bit patterns of a `timespec` are valid.
        let mut now: timespec = unsafe { mem::zeroed() };
        // SAFETY: `now` is valid for a write.
        unsafe { std::hint::black_box(function)(libc::CLOCK_MONOTONIC, &raw mut now) };
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    }
}
