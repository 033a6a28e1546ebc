//! The files of actors' databases, as SQLite reads and writes them.
//!
//! SQLite's own way to files looks through a list of all that are open at each opening, walks the path, writes
//! each frame of a WAL in two steps, and holds locks that any other descriptor of the file loses when it is
//! closed. An actor's database and its WAL need none of that: their paths are absolute, one connection has them,
//! and the lock that keeps other processes off belongs to the descriptor. Journals and temporary files go
//! SQLite's way.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    mem::{self, MaybeUninit},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    ptr, slice,
};

use rusqlite::ffi;
use wasmkeep_protocol::limits::PAGE_BYTES;

use crate::{
    error::is_disk_damage,
    wal::{FRAME_BYTES, FRAME_HEADER_BYTES, HEADER_BYTES},
};

/// The name SQLite knows these methods by; a connection is opened with it.
pub(crate) const VFS: &CStr = c"wasmkeep";

const PAGE: usize = PAGE_BYTES as usize;

/// The bytes of the file, far beyond its end, that SQLite's processes lock to keep each other off.
const LOCK_BYTES: (i64, i64) = (0x4000_0000, 512);

/// SQLite's own methods.
fn unix() -> *mut ffi::sqlite3_vfs {
    // SAFETY: looks the name up; what it answers lives as long as the process.
    unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) }
}

/// Makes the methods known to SQLite, once for the process; its answer.
pub(crate) fn register() -> c_int {
    let unix = unix();
    if unix.is_null() {
        return ffi::SQLITE_ERROR;
    }
    // SAFETY: the methods of this SQLite, which are plain data.
    let mut methods = unsafe { ptr::read(unix) };
    let size = c_int::try_from(mem::size_of::<FileSpace>()).unwrap_or(c_int::MAX);
    methods.szOsFile = methods.szOsFile.max(size);
    methods.pNext = ptr::null_mut();
    methods.zName = VFS.as_ptr();
    methods.xOpen = Some(open);
    methods.xFullPathname = Some(full_path);
    // SAFETY: SQLite keeps the pointer, and what it points to is never freed.
    unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(methods)), 0) }
}

/// An open database or WAL. SQLite reserves the place for it and reads its first field.
#[repr(C)]
struct FileSpace {
    base: ffi::sqlite3_file,
    state: MaybeUninit<State>,
}

struct State {
    file: File,
    /// The folder whose entry for this file has yet to be synced with it.
    folder_to_sync: Option<PathBuf>,
    is_locked: bool,
    is_wal: bool,
    /// Where the file ends. Nobody else makes it longer.
    bytes: u64,
    /// Where the next frame of a WAL goes. Frames of an earlier round may lie beyond.
    end: u64,
    /// The header of the frame at the end of a WAL, held back until its page comes: one write instead of two.
    header: Option<[u8; FRAME_HEADER_BYTES]>,
}

const METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // The first version: no shared memory and no mapped reads.
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

impl State {
    fn open(path: &Path, flags: c_int) -> io::Result<Self> {
        let is_wal = flags & ffi::SQLITE_OPEN_WAL != 0;
        let creates = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let file = OpenOptions::new().read(true).write(true).create(creates).truncate(false).open(path)?;
        let bytes = file.metadata()?.len();
        // A WAL that may be new: what a checkpoint writes rests on it, so its name must be on the disk too.
        let folder_to_sync = if is_wal && creates { path.parent().map(Path::to_owned) } else { None };
        Ok(Self { file, folder_to_sync, is_locked: false, is_wal, bytes, end: bytes, header: None })
    }

    /// Writes a frame's header that waits for its page.
    fn flush(&mut self) -> io::Result<()> {
        match self.header.take() {
            Some(header) => self.write_through(&header, self.end),
            None => Ok(()),
        }
    }

    fn write_through(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)?;
        self.bytes = self.bytes.max(at + bytes.len() as u64);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.header {
            Some(header) if at == self.end + FRAME_HEADER_BYTES as u64 && bytes.len() == PAGE => {
                let mut frame = [0; FRAME_BYTES];
                frame[..FRAME_HEADER_BYTES].copy_from_slice(&header);
                frame[FRAME_HEADER_BYTES..].copy_from_slice(bytes);
                self.header = None;
                self.write_through(&frame, self.end)?;
                self.end += FRAME_BYTES as u64;
                Ok(())
            }
            // Only at the end: a header written again, behind it, goes to the file at once.
            None if self.is_wal && at == self.end && bytes.len() == FRAME_HEADER_BYTES => {
                self.header = bytes.try_into().ok();
                Ok(())
            }
            _ => {
                self.flush()?;
                self.write_through(bytes, at)?;
                self.end = match at {
                    0 if self.is_wal && bytes.len() == HEADER_BYTES => HEADER_BYTES as u64,
                    _ => self.end.max(at + bytes.len() as u64),
                };
                Ok(())
            }
        }
    }

    /// Reads as much as there is; how much that was.
    fn read(&mut self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.flush()?;
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.flush()?;
        self.file.set_len(bytes)?;
        (self.bytes, self.end) = (bytes, self.end.min(bytes));
        Ok(())
    }

    fn len(&mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.bytes)
    }

    /// Keeps every other process's SQLite off the file, until it is closed.
    fn lock(&mut self) -> io::Result<()> {
        if self.is_locked {
            return Ok(());
        }
        // SAFETY: the structure is plain data, and the call reads it.
        let answer = unsafe {
            let mut wanted: libc::flock = mem::zeroed();
            wanted.l_type = libc::F_WRLCK as i16;
            wanted.l_whence = libc::SEEK_SET as i16;
            (wanted.l_start, wanted.l_len) = LOCK_BYTES;
            libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted)
        };
        if answer == -1 {
            return Err(io::Error::last_os_error());
        }
        self.is_locked = true;
        Ok(())
    }
}

/// The state behind a file.
///
/// # Safety
/// `file` was opened by [`open`] with success and is not closed; one call at a time.
unsafe fn state<'a>(file: *mut ffi::sqlite3_file) -> &'a mut State {
    // SAFETY: as above; `open` wrote the state before it set the methods.
    unsafe { (*file.cast::<FileSpace>()).state.assume_init_mut() }
}

/// The database of a WAL that is open has been renamed to `path`, and the WAL with it: the folder to sync is another.
///
/// # Safety
/// As for [`state`], or `file` is null or not open.
pub(crate) unsafe fn relocated(file: *mut ffi::sqlite3_file, path: &Path) {
    // SAFETY: the caller's promise; only files of ours have these methods.
    unsafe {
        if file.as_ref().is_some_and(|file| ptr::eq(file.pMethods, &METHODS)) {
            state(file).folder_to_sync = path.parent().map(Path::to_owned);
        }
    }
}

/// The code SQLite knows an error by; `otherwise` when it is none of those that mean something of their own.
fn code(error: &io::Error, otherwise: c_int) -> c_int {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ffi::SQLITE_FULL,
        _ => otherwise,
    }
}

fn answer(result: io::Result<()>, otherwise: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) => code(&error, otherwise),
    }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives a place of `szOsFile` bytes, and a name that lives until the file is closed or none.
    unsafe {
        (*file).pMethods = ptr::null();
        if name.is_null() || flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) == 0 {
            let unix = unix();
            let Some(open) = unix.as_ref().and_then(|methods| methods.xOpen) else {
                return ffi::SQLITE_CANTOPEN;
            };
            return open(unix, name, file, flags, flags_out);
        }
        let path = Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
        match State::open(path, flags) {
            Ok(state) => {
                (*file.cast::<FileSpace>()).state.write(state);
                (*file).pMethods = &METHODS;
                if let Some(flags_out) = flags_out.as_mut() {
                    *flags_out = flags;
                }
                ffi::SQLITE_OK
            }
            Err(error) if is_disk_damage(&error) => ffi::SQLITE_IOERR_READ,
            Err(_) => ffi::SQLITE_CANTOPEN,
        }
    }
}

/// SQLite asks for the whole path; here it already is.
unsafe extern "C" fn full_path(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite gives a C string, and a place for `room` bytes.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes_with_nul();
        if name.first() != Some(&b'/') || usize::try_from(room).unwrap_or(0) < name.len() {
            return ffi::SQLITE_CANTOPEN_FULLPATH;
        }
        ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len());
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once; a header that still waits belongs to a frame that never came.
    unsafe {
        (*file).pMethods = ptr::null();
        (*file.cast::<FileSpace>()).state.assume_init_drop();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, out: *mut c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: SQLite gives a place for so many bytes. It is zeroed first: a slice must not be uninitialised, and
    // what the file does not have must read as zeros.
    let (state, out) = unsafe {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        ptr::write_bytes(out.cast::<u8>(), 0, bytes);
        (state(file), slice::from_raw_parts_mut(out.cast::<u8>(), bytes))
    };
    match state.read(out, at as u64) {
        Ok(filled) if filled == out.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    bytes: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite gives so many bytes.
    let (state, bytes) = unsafe {
        (state(file), slice::from_raw_parts(from.cast::<u8>(), usize::try_from(bytes).unwrap_or(0)))
    };
    answer(state.write(bytes, at as u64), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: i64) -> c_int {
    // SAFETY: SQLite's own file.
    let state = unsafe { state(file) };
    answer(state.truncate(bytes as u64), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite's own file.
    let state = unsafe { state(file) };
    if let Err(error) = state.flush() {
        return code(&error, ffi::SQLITE_IOERR_WRITE);
    }
    if state.file.sync_data().is_err() {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    if let Some(folder) = &state.folder_to_sync {
        if File::open(folder).and_then(|folder| folder.sync_all()).is_err() {
            return ffi::SQLITE_IOERR_DIR_FSYNC;
        }
        state.folder_to_sync = None;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite's own file, and a place for the answer.
    unsafe {
        match state(file).len() {
            Ok(bytes) => {
                *out = bytes as i64;
                ffi::SQLITE_OK
            }
            Err(error) => code(&error, ffi::SQLITE_IOERR_FSTAT),
        }
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite's own file.
    match unsafe { state(file) }.lock() {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => ffi::SQLITE_BUSY,
        Err(_) => ffi::SQLITE_IOERR_LOCK,
    }
}

/// The lock stays until the file is closed: connections are exclusive.
unsafe extern "C" fn unlock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite gives a place for the answer. Nobody else can have a lock beside ours.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// As SQLite's own methods answer on Linux.
unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// As SQLite's own methods answer on Linux: a write that is cut short harms no byte beside it.
unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE | ffi::SQLITE_IOCAP_SUBPAGE_READ
}

#[cfg(test)]
mod tests;
