//! What every entry point shares: borrowed input, owned output, and the guard that turns a panic into a failure (a
//! panic that leaves an `extern "C"` function aborts the process).

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use crate::error::{Failure, Kind, Result};

/// Bytes handed to the caller, who gives them back to `spyre_text_bytes_free`.
#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

/// Token ids handed to the caller, who gives them back to `spyre_text_ids_free`.
#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
}

/// Bytes that stay with their owner.
#[repr(C)]
pub struct View {
    data: *const u8,
    size: usize,
}

fn give<T>(values: Vec<T>) -> (*mut T, usize) {
    let boxed = values.into_boxed_slice();
    let size = boxed.len();
    (Box::into_raw(boxed) as *mut T, size)
}

/// # Safety
/// `data` and `size` came from `give`, or `data` is null.
unsafe fn take_back<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)));
    }
}

impl Bytes {
    pub fn new(values: Vec<u8>) -> Self {
        let (data, size) = give(values);
        Bytes { data, size }
    }
}

impl Ids {
    pub fn new(values: Vec<u32>) -> Self {
        let (data, size) = give(values);
        Ids { data, size }
    }
}

impl View {
    pub fn new(bytes: &[u8]) -> Self {
        View { data: bytes.as_ptr(), size: bytes.len() }
    }
}

/// # Safety
/// `data` points to `size` readable elements, or `size` is 0.
pub unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// # Safety
/// As `slice`.
pub unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str> {
    std::str::from_utf8(slice(data, size))
        .map_err(|e| Failure::argument(format!("the text is not UTF-8: a bad byte at offset {}", e.valid_up_to())))
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are reported through the result, not on stderr.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(|l| format!("{}:{}", short(l.file()), l.line())).unwrap_or_default();
            let _ = PANIC_PLACE.try_with(|p| *p.borrow_mut() = place);
        }))
    });
}

fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Runs `f`; a panic becomes a failure of the given kind. While a file is loaded a panic in a library means that the
/// file is bad; afterwards it is a bug.
pub fn catching<T>(on_panic: Kind, f: impl FnOnce() -> Result<T>) -> Result<T> {
    quiet_panics();
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => {
            let what = payload
                .downcast_ref::<&str>()
                .map(|s| s.to_string())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "unknown".into());
            let place = PANIC_PLACE.with(|p| p.borrow().clone());
            Err(Failure::new(on_panic, format!("the text library panicked at {place}: {what}")))
        }
    }
}

/// The body of every fallible entry point: 0, or a `Kind` with a message in `error`.
///
/// # Safety
/// `error` is null or points to a writable `Bytes`.
pub unsafe fn guard(error: *mut Bytes, f: impl FnOnce() -> Result<()>) -> i32 {
    match catching(Kind::Internal, f) {
        Ok(()) => 0,
        Err(failure) => {
            if !error.is_null() {
                *error = Bytes::new(failure.message.into_bytes());
            }
            failure.kind as i32
        }
    }
}

/// # Safety
/// `bytes` points to what an entry point filled, or to zeros.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_bytes_free(bytes: *mut Bytes) {
    take_back((*bytes).data, (*bytes).size);
    *bytes = Bytes { data: std::ptr::null_mut(), size: 0 };
}

/// # Safety
/// `ids` points to what an entry point filled, or to zeros.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_ids_free(ids: *mut Ids) {
    take_back((*ids).data, (*ids).size);
    *ids = Ids { data: std::ptr::null_mut(), size: 0 };
}
