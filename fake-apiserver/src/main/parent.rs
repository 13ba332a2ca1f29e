//! The process that started this one.

pub(crate) use system::Parent;

#[cfg(unix)]
mod system {
    use std::io;
    use std::os::unix::process::parent_id;

    /// The process that started this one.
    #[derive(Debug)]
    pub(crate) struct Parent(u32);

    impl Parent {
        #[expect(clippy::unnecessary_wraps, reason = "other systems may refuse it")]
        pub(crate) fn current() -> io::Result<Self> {
            Ok(Self(parent_id()))
        }

        /// Returns `true` if the process has ended, in which case this process has a different parent.
        pub(crate) fn has_ended(&self) -> bool {
            parent_id() != self.0
        }
    }
}

#[cfg(windows)]
mod system {
    #![expect(unsafe_code, reason = "processes are handles of the system")]

    use std::io;
    use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

    use windows_sys::Win32::Foundation::{INVALID_HANDLE_VALUE, WAIT_OBJECT_0};
    use windows_sys::Win32::System::Diagnostics::ToolHelp::{
        CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
    };
    use windows_sys::Win32::System::Threading::{OpenProcess, PROCESS_SYNCHRONIZE, WaitForSingleObject};

    /// The process that started this one.
    #[derive(Debug)]
    pub(crate) struct Parent(OwnedHandle);

    impl Parent {
        /// Opens the process. Fails if it has already ended, or if this process is not permitted to wait for it.
        pub(crate) fn current() -> io::Result<Self> {
            let parent = parent_id()?;
            // SAFETY: the call takes no pointers.
            let handle = unsafe { OpenProcess(PROCESS_SYNCHRONIZE, 0, parent) };
            if handle.is_null() {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the handle is valid and has no other owner.
            Ok(Self(unsafe { OwnedHandle::from_raw_handle(handle) }))
        }

        /// Returns `true` if the process has ended.
        pub(crate) fn has_ended(&self) -> bool {
            // SAFETY: the handle is open as long as `self` exists, and the call does not block.
            unsafe { WaitForSingleObject(self.0.as_raw_handle(), 0) == WAIT_OBJECT_0 }
        }
    }

    /// Finds the id of the parent in a list of all processes.
    fn parent_id() -> io::Result<u32> {
        // SAFETY: the call takes no pointers.
        let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
        if list == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle is valid and has no other owner.
        let list = unsafe { OwnedHandle::from_raw_handle(list) };
        let mut entry = PROCESSENTRY32W {
            dwSize: size_of::<PROCESSENTRY32W>() as u32,
            ..Default::default()
        };
        // SAFETY: the handle is open, and `dwSize` of the entry is its size.
        let mut is_there = unsafe { Process32FirstW(list.as_raw_handle(), &mut entry) } != 0;
        while is_there {
            if entry.th32ProcessID == std::process::id() {
                return Ok(entry.th32ParentProcessID);
            }
            // SAFETY: same as above.
            is_there = unsafe { Process32NextW(list.as_raw_handle(), &mut entry) } != 0;
        }
        Err(io::Error::last_os_error())
    }
}
