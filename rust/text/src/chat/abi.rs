//! Entry points of chat templates. `include/spyre_text.h` is their contract.

use super::Template;
use crate::abi::{guard, slice, text, Bytes};

/// # Safety
/// As spyre_text.h says: the texts have their sizes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_template_new(
    source: *const u8, size: usize, bos: *const u8, bos_size: usize, eos: *const u8, eos_size: usize,
    out: *mut *mut Template, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        let template = Template::new(text(source, size)?, text(bos, bos_size)?, text(eos, eos_size)?)?;
        *out = Box::into_raw(Box::new(template));
        Ok(())
    })
}

/// # Safety
/// `template` is null or a live handle; it is dead afterwards.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// # Safety
/// `template` is live, `json` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_template_render(
    template: *const Template, json: *const u8, size: usize, mark: u32, out: *mut Bytes, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        let mark = if mark == 0 { None } else { char::from_u32(mark) };
        *out = Bytes::new((*template).render(slice(json, size), mark)?.into_bytes());
        Ok(())
    })
}
