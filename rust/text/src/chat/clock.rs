//! strftime_now(): the local date for templates that tell it to the model.

const FORMAT_LIMIT: usize = 256; // bytes
const TEXT_LIMIT: usize = 4096; // bytes

pub fn strftime_now(format: &str) -> Option<String> {
    if format.is_empty() {
        return Some(String::new());
    }
    if format.len() > FORMAT_LIMIT {
        return None;
    }
    let format = std::ffi::CString::new(format).ok()?;
    let mut text = vec![0u8; TEXT_LIMIT];
    // SAFETY: the pointers are to live objects of the right size, and strftime writes at most TEXT_LIMIT bytes.
    let length = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return None;
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &parts)
    };
    text.truncate(length);
    String::from_utf8(text).ok()
}
