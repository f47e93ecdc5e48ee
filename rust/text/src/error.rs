//! Failures sorted by remedy, like `spyre::ErrorCode` on the C++ side.

/// The numbers are part of the C ABI (`spyre_text.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// The caller's words are wrong: change the text or the call.
    InvalidArgument = 1,
    /// The file contradicts itself or is damaged: get a good copy.
    CorruptData = 2,
    /// Well-formed, but not read here.
    Unsupported = 3,
    /// A limit was reached.
    ResourceExhausted = 4,
    /// Our bug, or a library's.
    Internal = 5,
}

#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Failure { kind, message: one_line(&message.into()) }
    }
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidArgument, message)
    }
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::CorruptData, message)
    }
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, message)
    }
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Kind::ResourceExhausted, message)
    }
}

/// Quotes a word out of a file for a message: escaped, and cut after 40 characters.
pub fn quoted(word: &str) -> String {
    let mut out = String::from("'");
    for (i, c) in word.chars().enumerate() {
        if i == 40 {
            out.push_str("...");
            break;
        }
        out.extend(c.escape_debug());
    }
    out.push('\'');
    out
}

/// Messages are one line of bounded length: library errors may quote the whole input.
fn one_line(message: &str) -> String {
    const LIMIT: usize = 400;
    let mut out = String::with_capacity(message.len().min(LIMIT) + 3);
    for (i, c) in message.chars().enumerate() {
        if i == LIMIT {
            out.push_str("...");
            break;
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}
