//! The text services of the serving program, behind the C ABI of `include/spyre_text.h`.
//!
//! One module per service, each with its own `abi` file of entry points:
//!   `tokenizer`  Hugging Face tokenizers, loaded from hostile files
//!   `chat`       chat templates: messages to the text of a prompt
//! Shared by all of them:
//!   `abi`        buffers, results and the guard that keeps panics on this side
//!   `error`      failures sorted by what the caller should do next
//!
//! Whatever comes in (files, texts, ids) may be hostile. A service answers with a `Failure`; it neither aborts nor runs
//! without bound. Rust aborts when memory runs out, so every size is bounded before it is allocated.

mod abi;
mod chat;
mod error;
mod tokenizer;
