//! Entry points of the tokenizer. `include/spyre_text.h` is their contract.

use std::sync::Arc;

use super::stream::Stream;
use super::{EncodeOptions, Tokenizer};
use crate::abi::{guard, slice, text, Bytes, Ids, View};
use crate::error::Failure;

/// What the caller's handle points to.
pub struct Handle(Arc<Tokenizer>);

/// # Safety
/// As spyre_text.h says: `json` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_tokenizer_new(
    json: *const u8, size: usize, out: *mut *mut Handle, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        let tokenizer = Tokenizer::from_json(slice(json, size))?;
        *out = Box::into_raw(Box::new(Handle(Arc::new(tokenizer))));
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is null or a live handle; it is dead afterwards.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_tokenizer_free(tokenizer: *mut Handle) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// `tokenizer` is live, `data` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_encode(
    tokenizer: *const Handle, data: *const u8, size: usize, add_special: bool, parse_special: bool, out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    guard(error, || {
        *out = Ids::new((*tokenizer).0.encode(text(data, size)?, EncodeOptions { add_special, parse_special })?);
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is live, `ids` has `count` ids, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_decode(
    tokenizer: *const Handle, ids: *const u32, count: usize, skip_special: bool, out: *mut Bytes, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        *out = Bytes::new((*tokenizer).0.decode(slice(ids, count), skip_special)?.into_bytes());
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is live, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_token_bytes(
    tokenizer: *const Handle, id: u32, out: *mut Bytes, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        let tokenizer = &(*tokenizer).0;
        let bytes = tokenizer.token_bytes(id).ok_or_else(|| {
            Failure::argument(format!("token id {id} is not in the vocabulary (ids below {})", tokenizer.vocab_size()))
        })?;
        *out = Bytes::new(bytes);
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is live, `data` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_token_to_id(
    tokenizer: *const Handle, data: *const u8, size: usize, out: *mut i64, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        *out = (*tokenizer).0.token_to_id(text(data, size)?).map_or(-1, i64::from);
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is live.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_vocab_size(tokenizer: *const Handle) -> u32 {
    (*tokenizer).0.vocab_size()
}

/// # Safety
/// `tokenizer` is live, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_special_ids(tokenizer: *const Handle, out: *mut Ids, error: *mut Bytes) -> i32 {
    guard(error, || {
        *out = Ids::new((*tokenizer).0.special_ids().to_vec());
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is live, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_stream_new(
    tokenizer: *const Handle, skip_special: bool, out: *mut *mut Stream, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        *out = Box::into_raw(Box::new(Stream::new((*tokenizer).0.clone(), skip_special)));
        Ok(())
    })
}

/// # Safety
/// `stream` is null or live; it is dead afterwards.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_stream_free(stream: *mut Stream) {
    if !stream.is_null() {
        drop(Box::from_raw(stream));
    }
}

/// # Safety
/// `stream` is live and no other thread uses it; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_stream_push(
    stream: *mut Stream, id: u32, out: *mut View, error: *mut Bytes,
) -> i32 {
    guard(error, || {
        *out = View::new((*stream).push(id).as_bytes());
        Ok(())
    })
}

/// # Safety
/// `stream` is live and no other thread uses it; `ids` has `count` elements; `error` is writable.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_stream_follow(
    stream: *mut Stream, ids: *const u32, count: usize, error: *mut Bytes,
) -> i32 {
    guard(error, || (*stream).follow(slice(ids, count)))
}

/// # Safety
/// As `spyre_text_stream_push`.
#[no_mangle]
pub unsafe extern "C" fn spyre_text_stream_finish(stream: *mut Stream, out: *mut View, error: *mut Bytes) -> i32 {
    guard(error, || {
        *out = View::new((*stream).finish()?.as_bytes());
        Ok(())
    })
}
